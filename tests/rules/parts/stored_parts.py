"""What all forms of stages with parts of their own have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import Graph, tensors_read_by


def check_parts(
    y: Any,
    form: Callable[[Any], Sequence[Any] | None],
    name: str,
    count: int,
    data: Sequence[tuple[Any, Any]],
) -> None:
    """The form of a stage has so many parts of a name, which it reads, and its values; no form
    without parts.
    """
    found = form(y.op)
    if not count:
        assert found is None
        return
    assert found is not None
    assert sum(name in str(op.name) for op in Graph(found).ops) == count
    assert any(name in tensor.op.name for tensor in tensors_read_by(found[0].op))
    want, got = (evaluate_graph([one], data)[0] for one in (y, found[0]))
    np.testing.assert_allclose(got, want, rtol=1e-14)
