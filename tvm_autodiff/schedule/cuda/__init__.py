"""Schedule rules for CUDA, one a file."""
