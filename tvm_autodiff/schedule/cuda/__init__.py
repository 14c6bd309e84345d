"""Schedule rules for CUDA, one per file."""
