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
# # A custom operator in PyTorch
#
# A bilateral filter averages neighbours that are close in position and in value: it removes noise and keeps edges. PyTorch
# has no such operator. As tensor expressions it is one function, and the library derives its gradient.
# [tutorials/torch_operator.py](../tutorials/torch_operator.py) does the same as a script.

# %%
# %matplotlib inline
# %config InlineBackend.print_figure_kwargs = {"bbox_inches": None}
import sys

import torch
from matplotlib.figure import Figure
from tvm import te

import tvm_autodiff as ad

sys.path.insert(0, "../tutorials")
from torch_operator import SIZE, bilateral

# %% [markdown]
# ## The operator
#
# `bilateral` takes a signal and two parameters, the logarithms of the precisions in position and in value. Its expressions
# are:

# %% tags=["exact"]
signal = te.placeholder((SIZE,), name="signal")
logs = te.placeholder((2,), name="logs")
filtered = bilateral(signal, logs)
print(ad.show(filtered))

# %% [markdown]
# ## The backward pass
#
# These stages compute the gradient with respect to the precisions:

# %% tags=["exact"]
head = te.placeholder((SIZE,), name="head")
gradients = ad.differentiate(filtered, [signal, logs], head)
ad.draw_graph([filtered, gradients[1]], forward=filtered)

# %% tags=["exact"]
gradients.explain()

# %% [markdown]
# ## Training in PyTorch
#
# The signal is a square wave with noise. Adam finds the widths with which the filter comes closest to the clean signal.

# %% tags=["exact"]
torch.manual_seed(0)
clean = torch.sign(torch.sin(torch.linspace(0, 12, SIZE)))
noisy = clean + 0.3 * torch.randn(SIZE)
widths = torch.zeros(2, requires_grad=True)
optimizer = torch.optim.Adam([widths], lr=0.1)
errors, path = [], []
for _ in range(60):
    optimizer.zero_grad()
    loss = torch.mean((bilateral(noisy, widths) - clean) ** 2)
    loss.backward()
    optimizer.step()
    errors.append(loss.item())
    path.append(widths.detach().exp().clone())
print(f"error of the noisy signal {torch.mean((noisy - clean) ** 2):.3f}, filtered {errors[-1]:.3f}")

# %%
figure = Figure(figsize=(10, 3), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=[1, 2])
left.plot(errors, color="#1971c2")
left.set(xlabel="iteration", ylabel="mean square error", title="Training", ylim=(0, None))
right.plot(noisy, ".", ms=3, color="#9aa5b1", label="noisy")
right.plot(clean, color="black", lw=0.8, label="clean")
right.plot(bilateral(noisy, widths).detach(), color="#d9480f", label="filtered")
right.set(xlabel="place", title="The signal")
right.legend(frameon=False, ncols=3)
figure

# %% [markdown]
# ## The learned weights
#
# The weights of the filter depend on the position. At an edge it averages one side only, as the derivative of an output with
# respect to the signal shows. `torch.func.jacrev` applies to the operator:

# %%
jacobian = torch.func.jacrev(bilateral)(clean, widths.detach())
edge = int(torch.nonzero(clean[1:] != clean[:-1])[1])  # the first one is the border
figure = Figure(figsize=(8, 2.6), layout="constrained")
axes = figure.subplots()
for place, colour in ((edge - 12, "#1971c2"), (edge, "#d9480f")):
    offsets = torch.arange(-8, 9)
    axes.plot(offsets, jacobian[place, place + offsets], "o-", ms=3, color=colour)
axes.legend(["output on a plateau", "output at an edge"], frameon=False)
axes.set(xlabel="offset of the input that is read", ylabel="weight", title="Learned filter weights")
figure
