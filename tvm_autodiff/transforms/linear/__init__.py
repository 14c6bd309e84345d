"""Derivatives as linear maps and as matrices, dense and sparse."""
