"""Bridges to other frameworks, one package for each, which imports its framework."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("jax", "relax", "torch"):  # loaded when it is used
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"{__name__} has no {name!r}: it has jax, relax and torch")
