"""Copies of operands in the order in which they are read."""
