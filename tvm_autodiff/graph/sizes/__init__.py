"""Rewrites of sizes and extents: their dtype, their sign, and ranges that may be empty."""
