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
# # Newton's method with a sparse Jacobian
#
# The temperature $u$ of a rod satisfies $-u'' + u^3 = f$, with $u = 0$ at both ends. On a grid this is a system of
# equations, and each equation reads three neighbours. The pattern of the Jacobian follows from the expression, and only its
# nonzeros are computed. [tutorials/sparse_jacobian.py](../tutorials/sparse_jacobian.py) does the same as a script.

# %%
# %matplotlib inline
# %config InlineBackend.print_figure_kwargs = {"bbox_inches": None}
import sys

import numpy as np
from matplotlib.figure import Figure
from scipy.sparse.linalg import spsolve
from tvm import te

import tvm_autodiff as ad

sys.path.insert(0, "../tutorials")
from sparse_jacobian import residual

# %% tags=["exact"]
u = te.placeholder((12,), "float64", name="u")
source = te.placeholder((12,), "float64", name="source")
r = residual(u, source)
ad.show(r)

# %% [markdown]
# ## The pattern
#
# `sparsity` derives the pattern without evaluating anything. A dense Jacobian of this system has 144 elements:

# %% tags=["exact"]
pattern = ad.sparsity(r, u)
print(pattern)

# %% [markdown]
# ## The nonzeros as one vector
#
# `format="csr"` returns a matrix in compressed rows. Its values are a tensor expression:

# %% tags=["exact"]
jacobian = ad.jacobian(r, u, format="csr")
print(ad.show(jacobian.values))

# %%
evaluate = ad.build([u, source], [r, jacobian])
_, matrix = evaluate(np.linspace(0.0, 1.0, 12), np.zeros(12))
figure = Figure(figsize=(3.4, 3.2), layout="constrained")
axes = figure.subplots()
image = axes.imshow(np.where(matrix.toarray() == 0, np.nan, matrix.toarray()), cmap="RdBu_r")
figure.colorbar(image)
axes.set_title(f"{matrix.nnz} nonzeros of {matrix.shape[0]} × {matrix.shape[1]}")
figure

# %% [markdown]
# ## A fine grid
#
# The next grid has two thousand points, and the problem a known solution, $u(x) = \sin(\pi x)$. Each step of Newton's method
# evaluates the residual and the Jacobian in one call, and solves a sparse linear system.

# %% tags=["exact"]
points = 2000
u = te.placeholder((points,), "float64", name="u")
source = te.placeholder((points,), "float64", name="source")
r = residual(u, source)
evaluate = ad.build([u, source], [r, ad.jacobian(r, u, format="csr")])

x = np.linspace(0, 1, points + 2)[1:-1]
exact = np.sin(np.pi * x)
given = np.pi**2 * exact + exact**3
guesses, changes = [np.zeros(points)], []
while not changes or changes[-1] > 1e-9:
    value, matrix = evaluate(guesses[-1], given)
    change = spsolve(matrix.tocsc(), -np.asarray(value))
    changes.append(np.abs(change).max())
    guesses.append(guesses[-1] + change)
print(len(changes), "steps, error below the square of the spacing:", end=" ")
print(np.abs(guesses[-1] - exact).max() < x[0] ** 2)

# %%
figure = Figure(figsize=(8, 2.8), layout="constrained")
left, right = figure.subplots(1, 2)
for step, guess in enumerate(guesses[1:4], start=1):
    left.plot(x, guess, lw=1.2, label=f"after step {step}")
left.plot(x, exact, "k:", label="exact solution")
left.set(xlabel="x", ylabel="u", title="The solution")
left.legend(frameon=False)
right.semilogy(range(1, len(changes) + 1), changes, "o-", color="#0b7285")
right.set(xlabel="step", ylabel="largest change", title="Quadratic convergence")
right.set_xticks(range(1, len(changes) + 1))
figure
