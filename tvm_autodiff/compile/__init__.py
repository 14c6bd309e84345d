"""Compiles tensors into callable functions: `lower`, `build` and `load`."""

from ..runtime.files.build_cache import clear_cache
from ..runtime.files.loading import load
from ..schedule.tuning.options import Tuning
from .pipeline import build, lower

__all__ = ["Tuning", "build", "clear_cache", "load", "lower"]
