"""Gradients beside PyTorch's and JAX's: ``python -m benchmarks.suite``, or ``make bench``.

The cases are in one module per family (`dense`, `convolution`, ...), each written in te, in PyTorch
and in JAX. Every library runs in a process of its own, and its answers are compared with float64.
The times become a table and a picture in docs/.
"""
