"""Sums that have work in common: computed in one pass, or from what is stored."""
