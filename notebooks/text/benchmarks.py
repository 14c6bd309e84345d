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
# # Benchmarks at a glance
#
# `make bench` measures the gradients of 20 programs beside PyTorch and JAX, and records the times in
# [docs/benchmarks.md](../docs/benchmarks.md). This notebook draws the recorded figures, and shows the work behind one bar.

# %%
# %matplotlib inline
# %config InlineBackend.print_figure_kwargs = {"bbox_inches": None}
import sys
from pathlib import Path

from IPython.display import SVG
from matplotlib.figure import Figure
from tvm import te, topi

import tvm_autodiff as ad

sys.path.insert(0, "..")
from benchmarks.headline import picture, ratios

recorded = Path("../docs/benchmarks.md").read_text("utf-8")

# %% [markdown]
# ## Two threads
#
# A bar is the time of the fastest of PyTorch eager, `torch.compile`, `torch.func` and JAX, over ours. Grey bars are within 5%.

# %%
cases, mean = ratios(recorded, threads=2)
SVG(picture(cases, mean))

# %% [markdown]
# ## One thread and two

# %%
single, single_mean = ratios(recorded, threads=1)
order = sorted(cases, key=cases.get)
figure = Figure(figsize=(8, 5.2), layout="constrained")
axes = figure.subplots()
rows = range(len(order))
axes.barh([row + 0.2 for row in rows], [cases[name] for name in order], 0.4, color="#1971c2")
axes.barh([row - 0.2 for row in rows], [single[name] for name in order], 0.4, color="#74c0fc")
axes.legend([f"2 threads, mean {mean:.2f}", f"1 thread, mean {single_mean:.2f}"], frameon=False)
axes.set_xscale("log")
axes.set_xticks([1, 2, 5], ["1×", "2×", "5×"], minor=False)
axes.minorticks_off()
axes.axvline(1, color="black", lw=0.8)
axes.set_yticks(rows, order, fontsize=8)
axes.set_title("Time of the fastest peer over ours")
figure

# %% [markdown]
# ## Behind the longest bar
#
# The gradient of max pooling goes to the first maximum of each window. Windows of 2x2 with stride 2 do not overlap, so each
# element of the gradient needs one window. The strategy and the number of iterations show this:

# %% tags=["exact"]
x = te.placeholder((16, 32, 56, 56), name="x")
pooled = topi.nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], "max")
head = te.placeholder(pooled.shape, name="head")
result = ad.differentiate(pooled, [x], head)
result.explain()

# %% tags=["exact"]
cost = ad.estimate_cost(result[0])
print(f"{cost.iterations:,} iterations for {16 * 32 * 56 * 56:,} elements of the gradient")

# %% tags=["exact"]
ad.draw_graph([pooled, result[0]], forward=pooled)
