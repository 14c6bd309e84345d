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
# # A custom derivative for part of a graph
#
# Newton's iteration computes the square root $y$ of $a$ in a few steps. The rules of calculus differentiate each step. But
# the root does not depend on the steps: $y^2 = a$ implies $2y\,dy = da$. `override` puts such a derivative into the graph.
# [tutorials/override_jacobian.py](../tutorials/override_jacobian.py) shows other ways to do this.

# %%
import numpy as np
from tvm import te

import tvm_autodiff as ad

# %% [markdown]
# ## The computation

# %% tags=["exact"]
STEPS = 4
x = te.placeholder((128,), name="x")
a = te.compute((128,), lambda i: 1.0 + x[i] * x[i], name="a")
root = a
for _ in range(STEPS):
    y = root
    root = te.compute((128,), lambda i: 0.5 * (y[i] + a[i] / y[i]), name="y")
ad.show(root)

# %% [markdown]
# ## The derivative of the steps
#
# The backward pass goes through every step and reads the value of each:

# %% tags=["exact"]
head = te.placeholder((128,), name="head")
default = ad.differentiate(root, [x], head)
ad.draw_graph([root, default[0]], forward=root)

# %% [markdown]
# ## The derivative of the equation
#
# The function gets the output, the inputs of the override, and the cotangent of the output. It returns the cotangents of
# the inputs. In the graph, `y_4` has the values of `y_3` and the custom derivative; no step has a backward pass.


# %% tags=["exact"]
def by_equation(out, tensors, head):
    return [te.compute(out.shape, lambda i: head[i] / (2.0 * out[i]), name="da")]


override = ad.differentiate(root, [x], head, override={root: ([a], by_equation)})
ad.draw_graph([root, override[0]], forward=root)

# %% tags=["exact"]
ad.show(override[0])

# %% [markdown]
# ## Values and costs

# %% tags=["exact"]
random = np.random.default_rng(0)
arrays = [random.uniform(size=128).astype("float32") for _ in range(2)]
found = {}
for name, result in (("default", default), ("override", override)):
    cost = ad.estimate_cost(result[0])
    found[name] = ad.build([x, head], result[0])(*arrays)
    print(f"{name:9} {cost.iterations:5} iterations, {cost.multiplications:5} multiplications")
print("equal to 5 digits:", np.allclose(found["default"], found["override"], rtol=1e-5))

# %% [markdown]
# `explain()` shows the custom derivative, and the other reads, which the rules of calculus differentiate:

# %% tags=["exact"]
override.explain()
