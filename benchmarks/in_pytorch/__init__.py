"""Operators written in te beside PyTorch's own operations, called from PyTorch: ``python -m
benchmarks.in_pytorch``.
"""
