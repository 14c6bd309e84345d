"""Gradients of random programs beside PyTorch and JAX: ``python -m benchmarks.generated``.

A seeded generator draws realistic operators: their family, shapes, borders, bodies, reducers and
dtypes. Each program is written in te, in PyTorch and in JAX, and the times become a page in docs/.
"""
