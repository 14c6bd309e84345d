"""Sums with guards: what they are, how the solver bounds them, and how they become stages."""
