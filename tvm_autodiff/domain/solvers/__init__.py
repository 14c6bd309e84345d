"""Exact solvers: matrices of integers, systems of equations and of inequalities, bounds."""
