"""Derivatives in TVM's own pipelines: Relax modules, `relax.transform.Gradient` and its trainer."""

from __future__ import annotations

from . import error_kinds
from .emit_te import emit_te
from .gradients import register_gradients
from .passes import clean, differentiable
from .schedule import build, explain, schedule

__all__ = [
    "build",
    "clean",
    "differentiable",
    "emit_te",
    "explain",
    "register_gradients",
    "schedule",
]

error_kinds.make_known()
