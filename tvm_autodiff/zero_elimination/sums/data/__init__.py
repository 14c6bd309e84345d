"""Conditions on what tensors hold: equations, bounds and masks of data."""
