"""Operators of papers and handbooks, written as a user would: forward and gradients at once.

Each is written once in te, once for JAX and once for PyTorch, whose program runs eagerly and under
torch.compile. None was used to choose a rule or a constant before it was measured for the first
time; `python -m benchmarks.operators` prints the time of the fastest peer over ours, least last.
"""
