"""Loops over time whose rows, or parts of time, are the lanes of vectors."""
