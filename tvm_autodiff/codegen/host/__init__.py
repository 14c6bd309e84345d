"""Functions that run on the host: checks of arguments, calls of kernels, and the host's CPU."""
