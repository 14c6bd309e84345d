"""Which stages share loops: kernels, and chains of kernels."""
