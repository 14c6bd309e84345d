"""Transposition of derivative terms, and the removal of sums over zeros from the result."""
