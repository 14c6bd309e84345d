"""Loops that CPU rules write: vectors, parts of equal conditions, residue classes, shared work."""
