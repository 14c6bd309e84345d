"""Schedule rules for CPUs, one a file."""
