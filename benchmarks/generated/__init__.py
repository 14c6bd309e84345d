"""Programs drawn by a seeded generator, beside PyTorch and JAX: ``python -m benchmarks.generated``.

In: a seed and a count. Out: gradients of realistic operators whose family, shapes, borders, bodies,
reducers and dtypes are drawn, written in te, in PyTorch and in JAX; times and a page in docs/.
"""
