"""Names of functions and parameters in modules, made from those of stages."""

from __future__ import annotations


def identifier(name: str) -> str:
    """A name that every language accepts; empty for an empty one."""
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)[:60]
    return text if text and not text[0].isdigit() else f"k{text}"
