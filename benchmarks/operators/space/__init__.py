"""Operators over space: points, bodies, grids, images."""
