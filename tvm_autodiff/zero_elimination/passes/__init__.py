"""Transformations of any tensors that remove sums over zeros."""
