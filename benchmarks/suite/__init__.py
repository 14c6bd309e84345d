"""Gradients beside PyTorch's and JAX's: ``python -m benchmarks.suite``, or ``make bench``.

In: the cases in the files of families (`dense`, `convolution`, ...), each written three times: in
te, in PyTorch, in JAX. Out: times of every library in a process of its own, answers compared with
float64, a table and a picture in docs/.
"""
