# ---
# jupyter:
#   jupytext:
#     formats: ipynb,text//py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Fitting a differential equation to data
#
# Hares and lynxes were counted for two decades. The equations of Lotka and Volterra describe the two populations by four
# rates and two initial values. The gradient of the misfit goes through 400 steps of Runge and Kutta's method.
# This notebook imports functions of [tutorials/fit_ode.py](../tutorials/fit_ode.py).

# %%
# %matplotlib inline
# %config InlineBackend.print_figure_kwargs = {"bbox_inches": None}
import sys

import numpy as np
from matplotlib.figure import Figure
from tvm import te

import tvm_autodiff as ad

sys.path.insert(0, "../tutorials")
import fit_ode as ode

# %% [markdown]
# ## The equations
#
# With $u$ hares and $v$ lynxes, $u' = \alpha u - \beta u v$ and $v' = \delta u v - \gamma v$. The logarithms of all parameters
# are learned:

# %% tags=["exact"]
now = te.placeholder((2,), "float64", name="now")
logs = te.placeholder((6,), "float64", name="logs")
ad.show(ode.slope(now, logs))

# %% [markdown]
# ## The solver and its derivative
#
# The solver is a `scan` over steps of a twentieth of a year. The loop of 400 steps is one stage of the graph:

# %% tags=["exact"]
pelts = te.placeholder(ode.PELTS.shape, "float64", name="pelts")
loss = ode.misfit(logs, pelts)
ad.draw_graph(loss)

# %% [markdown]
# Both modes differentiate loops. Forward mode gives the derivative along a direction; the gradient from reverse mode gives
# the same number:

# %% tags=["exact"]
gradients = ad.differentiate(loss, [logs])
direction = te.placeholder((6,), "float64", name="direction")
[tangent] = ad.jvp([loss], [logs], [direction])
both = ad.build([pelts, logs, direction], [gradients[0], tangent])
vector = np.random.default_rng(0).normal(size=6)
slope, along = (np.asarray(part) for part in both(ode.PELTS, ode.START, vector))
print("equal in both modes:", np.isclose(slope @ vector, along))

# %% [markdown]
# ## The fit

# %% tags=["exact"]
fitted, losses = ode.fit(500)
for name, first, last in zip(ode.NAMES, np.exp(ode.START), np.exp(fitted), strict=True):
    print(f"{name:16} first guess {first:7.3f}   fitted {last:7.3f}")

# %%
figure = Figure(figsize=(10, 3), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=[1, 2])
left.semilogy(losses, color="#1971c2")
left.set(xlabel="iteration", ylabel="loss", title="Misfit")
years = ode.FIRST_YEAR + np.arange(len(ode.PELTS))
times = ode.FIRST_YEAR + np.arange(1, ode.YEARS * ode.STEPS + 1) / ode.STEPS
for species, (name, colour) in enumerate((("hares", "#1971c2"), ("lynxes", "#d9480f"))):
    right.plot(years, ode.PELTS[:, species], "o", ms=4, color=colour, label=f"{name}, counted")
    path = ode.path_of(fitted, ode.YEARS)[:, species]
    right.plot(times, path, color=colour, label=f"{name}, fitted")
right.set(ylabel="thousands of pelts", xlabel="year", title="Counts and fitted populations")
right.set(xticks=range(1900, 1921, 4), ylim=(0, 105))
right.legend(frameon=False, ncols=2, fontsize=8)
figure
