"""Loops that CPU rules write: vectors, index-set splitting, residue classes, common subexpressions.
"""
