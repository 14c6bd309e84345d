"""Splits a program and its gradient into two functions: a forward pass and a backward pass."""

from __future__ import annotations

from .build_vjp import BackwardPass, ForwardPass, VjpFunctions, build_vjp

__all__ = ["BackwardPass", "ForwardPass", "VjpFunctions", "build_vjp"]
