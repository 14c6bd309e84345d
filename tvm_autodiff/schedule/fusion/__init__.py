"""Decides which stages share loops: kernels, and fusion groups of kernels."""
