"""Rewrites of te before kernels are cut: normal form, fused passes, split axes."""
