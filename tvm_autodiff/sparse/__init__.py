"""Sparse Jacobians: patterns of zeros, colourings, values of the non-zeros, and matrices."""

from .matrix import SparseMatrix
from .pattern import Pattern

__all__ = ["Pattern", "SparseMatrix"]
