"""Rewrites of whole TIR functions."""
