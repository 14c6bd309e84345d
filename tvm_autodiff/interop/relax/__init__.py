"""Derivatives in TVM's own pipelines: Relax modules, `relax.transform.Gradient` and its trainer."""

from __future__ import annotations

from . import error_kinds
from .gradients import register_gradients

__all__ = ["register_gradients"]

error_kinds.make_known()
