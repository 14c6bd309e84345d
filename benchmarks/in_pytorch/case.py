"""What a case of this benchmark consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

#: from inputs to the values and gradients that are compared
Step = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Case:
    """One computation in several ways.

    Attributes
    ----------
    title : str
        What is computed.
    inputs : callable
        From a dtype to the arguments of the steps.
    ways : mapping from str to callable
        Under a name what makes a step, given nothing. The names of ours begin with "te".
    reference : str
        The way that is run in float64 to check the others.
    """

    title: str
    inputs: Callable[[Any], Sequence[Any]]
    ways: Mapping[str, Callable[[], Step]]
    reference: str


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function by torch.compile, as one graph."""
    return torch.compile(function, fullgraph=True)
