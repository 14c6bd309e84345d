"""Jacobians that know their zeros: patterns, colourings, values of the nonzeros, matrices."""

from .matrix import SparseMatrix
from .pattern import Pattern

__all__ = ["Pattern", "SparseMatrix"]
