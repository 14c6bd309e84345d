"""Transformations of any te tensors that remove sums over zeros."""
