"""A tool for GradBench (github.com/gradbench/gradbench), a suite of differentiation tools.

``python -m benchmarks.gradbench`` speaks the suite's protocol, and
``python -m benchmarks.gradbench.compare`` measures the same evals beside JAX and PyTorch.
"""
