"""Rewrites of reductions over windows: written out, in steps, one axis after the other."""
