"""What formulas are written over: an array library, and an eval in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Arrays = tuple[Any, ...]


@dataclass(frozen=True)
class Library:
    """What the formulas take from an array library beside functions of equal names."""

    numpy: Any  #: jax.numpy or torch
    grad: Callable[..., Any]  #: of a function and the numbers of its arguments
    jacrev: Callable[..., Any]
    jacfwd: Callable[..., Any]
    jvp: Callable[..., Any]
    vmap: Callable[..., Any]
    constant: Callable[[Any], Any]  #: an array of numpy as one of the library
    log_sum_exp: Callable[[Any, int], Any]
    largest: Callable[[Any], Any]
    nearest: Callable[[Any], Any]  #: the place of the least element of each row
    scattered: Callable[[Any, tuple[Any, ...], Any], Any]  #: values written into zeros
    powers: Callable[[Any, int], Any]  #: of each element those from 0 on, as a row
    scan: Callable[..., tuple[Any, Any]]  #: of a step, the first carry, sequences, the length
    sigmoid: Callable[[Any], Any]


@dataclass(frozen=True)
class Peer:
    """An eval in one library."""

    arguments: Arrays
    functions: Mapping[str, Callable[..., Any]]


#: an eval in a library, for an input of the suite
PeerOf = Callable[[Library, Mapping[str, Any]], Peer]
