"""Gradients of many shapes and operators beside PyTorch eager and JAX jit, to find what is slow.

`python -m benchmarks.breadth --case NAME ...` measures some, without names all; the suite's cases
are not repeated. One process runs every library in turn: a breadth look, not the suite's figures.
"""
