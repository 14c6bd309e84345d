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
# # The gradient of a strided convolution as a gather
#
# In a convolution with stride 2, each element of the input occurs in only a few sums. Its gradient adds up the contributions
# of these sums. This notebook draws the sums before and after the integer equation is solved.
# [tutorials/strided_convolution.py](../tutorials/strided_convolution.py) does the same as a script.

# %%
# %matplotlib inline
# %config InlineBackend.print_figure_kwargs = {"bbox_inches": None}
import numpy as np
from matplotlib.figure import Figure
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.domain import Domain, simplify_domain

# %% tags=["exact"]
x, w = te.placeholder((17,), "float64", name="x"), te.placeholder((3,), "float64", name="w")
tap = te.reduce_axis((0, 3), "k")
y = te.compute((8,), lambda i: te.sum(x[2 * i + tap] * w[tap], axis=tap), name="y")
ad.show(y)

# %% [markdown]
# ## The equation
#
# Output $i$ reads $x_{2i+k}$. The gradient with respect to $x_j$ is a sum over all pairs $(i, k)$ with $2i + k = j$. Few of
# the 24 pairs satisfy this equation. Here they are the filled points, for $j = 6$ and for $j = 7$:

# %% tags=["exact"]
i, k, j = te.var("i"), te.var("k"), te.var("j")
reads = Domain((i, k), {i: (0, 8), k: (0, 3), j: (0, 17)}, ((2 * i + k).equal(j),))
ad.draw_domain(reads, [{j: 6}, {j: 7}])

# %% [markdown]
# ## The solution
#
# `simplify_domain` solves the equation over the integers. One free variable is left, with two values:

# %% tags=["exact"]
solution = simplify_domain(reads)
for variable, value in solution.old_to_new.items():
    print(f"{variable} = {value}")

# %% tags=["exact"]
ad.draw_domain(reads, [{j: 6}, {j: 7}], solved=True)

# %% [markdown]
# Two outputs read an element with even $j$, and one output reads an element with odd $j$. The box has two points in both
# cases, and a guard excludes the second one for odd $j$.
#
# ## The gather
#
# `differentiate` does this for every read of every stage:

# %% tags=["exact"]
head = te.placeholder((8,), "float64", name="head")
result = ad.differentiate(y, [x, w], head)
ad.show(list(result))

# %% tags=["exact"]
result.explain()

# %% [markdown]
# Other strides and dilations lead to other equations. A dilation of 3 has taps that are three elements apart:

# %% tags=["exact"]
dilated = Domain((i, k), {i: (0, 6), k: (0, 3), j: (0, 12)}, ((i + 3 * k).equal(j),))
ad.draw_domain(dilated, {j: 5}, solved=True)

# %% [markdown]
# The gradient of the weights has no zeros to remove, because every output reads every $w_k$.
#
# ## Iterations
#
# The picture shows the iterations for the gradient with respect to $x$ for several strides, as the sum over all pairs and as
# the gather:

# %%
strides, dense, gather = range(1, 6), [], []
for stride in strides:
    size = 15 * stride + 5
    image, kernel = te.placeholder((size,), name="x"), te.placeholder((5,), name="w")
    taps = te.reduce_axis((0, 5), "k")
    term = lambda i: image[stride * i + taps] * kernel[taps]
    blurred = te.compute((16,), lambda i: te.sum(term(i), axis=taps), name="y")
    [slope] = ad.differentiate(blurred, [image], te.placeholder((16,), name="head"))
    dense.append(size * 16 * 5)
    gather.append(ad.estimate_cost(slope).iterations)

figure = Figure(figsize=(6, 2.6), layout="constrained")
axes = figure.subplots()
axes.semilogy(strides, dense, "o-", color="#9aa5b1", label="sum over all pairs")
axes.semilogy(strides, gather, "o-", color="#0b7285", label="gather")
axes.set(xlabel="stride", ylabel="iterations", xticks=list(strides), title="5 taps, 16 outputs")
axes.legend(frameon=False)
figure

# %% [markdown]
# ## Values
#
# The values equal those of a loop that adds each contribution to its element:

# %% tags=["exact"]
random = np.random.default_rng(0)
heads, weights = random.normal(size=8), random.normal(size=3)
scattered = np.zeros(17)
for output in range(8):
    scattered[2 * output : 2 * output + 3] += heads[output] * weights
gathered = ad.build([head, w], result[0])(heads, weights)
print("equal:", np.allclose(gathered, scattered))
