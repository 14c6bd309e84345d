"""The evals in JAX and PyTorch, as their users would write them: float64, arrays of the library.

Formulas are written once for both array libraries where their functions agree; what differs is in
`Library`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .formulas import ba, gmm, ht, kmeans, llsq, lse
from .library import PeerOf
from .loops import lstm, ode

#: module → the eval in a library
PEERS: dict[str, PeerOf] = {
    "gmm": gmm,
    "kmeans": kmeans,
    "llsq": llsq,
    "lse": lse,
    "ba": ba,
    "ht": ht,
    "ode": ode,
    "lstm": lstm,
}
#: those that go through steps one after another
LOOPS = frozenset({"ode", "lstm"})


def prepare(
    name: str, threads: int, module: str, function: str, data: Mapping[str, Any]
) -> Callable[[], list[np.ndarray]]:
    """Compile a function of an eval; returns a call that waits for its results."""
    if name == "jax":
        from .with_jax import compiled_by_jax

        return compiled_by_jax(PEERS[module], function, data)
    from .with_torch import by_autograd, by_functions

    way = by_autograd if module in LOOPS else by_functions
    return way(PEERS[module], function, data, threads, name == "torch.compile")
