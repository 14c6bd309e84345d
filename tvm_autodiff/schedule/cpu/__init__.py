"""Schedule rules for CPUs, one per file."""
