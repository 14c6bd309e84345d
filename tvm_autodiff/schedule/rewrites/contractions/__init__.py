"""Sums of products of several tensors: in the cheapest order, with common parts computed once."""
