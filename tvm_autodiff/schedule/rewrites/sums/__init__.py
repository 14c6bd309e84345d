"""Rewrites of sums: their order, their parts, and what several of them share."""
