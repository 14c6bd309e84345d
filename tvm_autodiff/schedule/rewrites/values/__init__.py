"""Rewrites that store values: of few places, of loops alone, and parts of large expressions."""
