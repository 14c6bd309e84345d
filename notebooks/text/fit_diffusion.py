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
# # Diffusion coefficients by gradient descent
#
# A rod consists of two halves with different diffusion coefficients. Its temperature is known at the beginning and, with
# noise, at the end. Gradient descent through the simulation finds both coefficients.
# [tutorials/fit_diffusion.py](../tutorials/fit_diffusion.py) does the same as a script.

# %%
# %matplotlib inline
# %config InlineBackend.print_figure_kwargs = {"bbox_inches": None}
import sys

import numpy as np
from matplotlib.figure import Figure
from tvm import te, topi

import tvm_autodiff as ad

sys.path.insert(0, "../tutorials")
from fit_diffusion import POINTS, STEPS, simulate

# %% [markdown]
# ## The simulation
#
# The simulation takes forty explicit steps. A `scan` is one stage, so code size and compile time do not grow with the number
# of steps.

# %% tags=["exact"]
start = te.placeholder((4, POINTS), "float64", name="start")
logs = te.placeholder((2,), "float64", name="logs")
final = simulate(start, logs)
print(ad.show(final))

# %% [markdown]
# ## The gradient
#
# The derivative of a `scan` is a loop that runs backward through the steps.

# %% tags=["exact"]
measured = te.placeholder((4, POINTS), "float64", name="measured")
apart = te.compute((4, POINTS), lambda n, i: final[n, i] - measured[n, i], name="apart")
square = te.compute((4, POINTS), lambda n, i: apart[n, i] * apart[n, i], name="square")
loss = topi.sum(square)
gradients = ad.differentiate(loss, [logs])
ad.draw_graph([loss, *gradients], forward=loss)

# %% tags=["exact"]
gradients.explain()

# %% [markdown]
# ## Measurements and gradient descent
#
# The measurements are simulated with known coefficients. The parameters are the logarithms of the coefficients, which keeps
# the coefficients positive.

# %% tags=["exact"]
forward = ad.build([start, logs], final)
loss_and_gradient = ad.build([start, measured, logs], [loss, *gradients])

random = np.random.default_rng(0)
truth = np.array([0.05, 0.30])
begin = random.normal(size=(4, POINTS))
end = np.asarray(forward(begin, np.log(truth))) + random.normal(scale=1e-3, size=(4, POINTS))

guess, losses, path = np.log([0.15, 0.15]), [], []
mean, spread = np.zeros(2), np.zeros(2)
for iteration in range(200):  # Adam, in numpy
    value, slope = (np.asarray(part) for part in loss_and_gradient(begin, end, guess))
    losses.append(float(value))
    path.append(np.exp(guess))
    mean, spread = 0.9 * mean + 0.1 * slope, 0.99 * spread + 0.01 * slope**2
    corrected = mean / (1 - 0.9 ** (iteration + 1))
    guess = guess - 0.05 * corrected / np.sqrt(spread / (1 - 0.99 ** (iteration + 1)))
for half, true, found in zip(("left", "right"), truth, np.exp(guess), strict=True):
    print(f"{half:5} half: true {true:.2f}, found {found:.2f}")

# %%
figure = Figure(figsize=(10, 2.9), layout="constrained")
left, middle, right = figure.subplots(1, 3)
left.semilogy(losses, color="#1971c2")
left.set(xlabel="iteration", ylabel="loss", title="Misfit")
for half, colour in ((0, "#1971c2"), (1, "#d9480f")):
    middle.plot([point[half] for point in path], color=colour, label=("left", "right")[half])
    middle.axhline(truth[half], color=colour, ls=":")
middle.set(xlabel="iteration", ylabel="coefficient", title="Found (solid) and true (dotted)")
middle.legend(frameon=False, title="half of the rod")
right.plot(begin[0], color="#9aa5b1", lw=0.9, label="at the beginning")
right.plot(end[0], "k.", ms=4, label="measured at the end")
right.plot(np.asarray(forward(begin, guess))[0], color="#0b7285", label="simulated, fitted")
right.set(xlabel="place", ylabel="temperature", title=f"One rod, {STEPS} steps")
right.legend(frameon=False, fontsize=7)
figure
