"""Printing of expressions."""
