"""Guarded sums: their type, their bounds from the solver, and their stages."""
