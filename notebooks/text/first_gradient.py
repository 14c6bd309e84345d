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
# # A first gradient
#
# A tensor expression defines each element of its result. `tvm_autodiff.differentiate` returns the gradient in the same
# language: tensor expressions that can be shown, counted, drawn, differentiated again and compiled.
# [tutorials/first_gradient.py](../tutorials/first_gradient.py) derives such gradients step by step.

# %%
import numpy as np
from tvm import te

import tvm_autodiff as ad

# %% [markdown]
# ## A matrix product
#
# In a notebook `ad.show` displays formulas. `print(ad.show(...))` prints plain text with shapes and dtypes.

# %% tags=["exact"]
A = te.placeholder((40, 50), "float64", name="A")
B = te.placeholder((50, 30), "float64", name="B")
k = te.reduce_axis((0, 50), "k")
C = te.compute((40, 30), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
ad.show(C)

# %% [markdown]
# `head` is the cotangent of the output: the derivative of some loss with respect to each element of $C$. By definition,
# the gradient with respect to $A_{p,q}$ is a sum over all $(i, j, k)$, in which a term is zero unless the product read
# $A_{p,q}$:

# %% tags=["exact"]
head = te.placeholder((40, 30), "float64", name="head")
i, j, n = (te.reduce_axis((0, extent), name) for extent, name in ((40, "i"), (30, "j"), (50, "n")))
definition = te.compute(
    (40, 50),
    lambda p, q: te.sum(
        te.if_then_else(te.all(i == p, n == q), head[i, j] * B[n, j], 0.0), axis=[i, j, n]
    ),
    name="dA",
)
ad.show(definition)

# %% [markdown]
# `differentiate` solves the equations $i = p$ and $n = q$. Two sums and all zeros are gone:

# %% tags=["exact"]
result = ad.differentiate(C, [A, B], head)
ad.show(list(result))

# %% tags=["exact"]
for name, tensor in (("definition", definition), ("differentiate", result[0])):
    print(f"{name:13} {ad.estimate_cost(tensor).iterations:>12,} iterations")

# %% [markdown]
# ## How each gradient was derived
#
# `explain()` lists every read of the forward computation with the strategy, the iterations, and a lower bound for them. A
# notebook displays a table, the worst read first.

# %% tags=["exact"]
result.explain()

# %% [markdown]
# ## A network
#
# `draw_graph` draws the stages of a graph, the forward pass in blue and the backward pass in orange. A dashed line is a
# value of the forward pass that the backward pass reads. Point at a box to see the expression of the stage.

# %% tags=["exact"]
x, w = te.placeholder((32, 64), name="x"), te.placeholder((10, 64), name="w")
target = te.placeholder((32, 10), name="target")
c = te.reduce_axis((0, 64), "c")
m, o = te.reduce_axis((0, 32), "m"), te.reduce_axis((0, 10), "o")
scores = te.compute((32, 10), lambda n, o: te.sum(x[n, c] * w[o, c], axis=c), name="scores")
output = te.compute((32, 10), lambda n, o: te.tanh(scores[n, o]), name="output")
apart = te.compute((32, 10), lambda n, o: output[n, o] - target[n, o], name="apart")
loss = te.compute((), lambda: te.sum(apart[m, o] * apart[m, o], axis=[m, o]), name="loss")
gradients = ad.differentiate(loss, [x, w])
ad.draw_graph([loss, *gradients], forward=loss)

# %% tags=["exact"]
ad.show([loss, *gradients])

# %% [markdown]
# ## Values
#
# `build` compiles tensors into a function of arrays. `check_grads` compares the gradients with finite differences, and raises
# an error if they differ.

# %% tags=["exact"]
step = ad.build([x, w, target], [loss, *gradients])
random = np.random.default_rng(0)
arrays = [random.normal(size=shape).astype("float32") for shape in ((32, 64), (10, 64), (32, 10))]
value, dx, dw = step(*arrays)
print(f"loss {float(value):.1f}, gradients of shapes {dx.shape} and {dw.shape}")
ad.check_grads(C, [A, B])
