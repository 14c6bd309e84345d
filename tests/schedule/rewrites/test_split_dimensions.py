"""Dimensions of groups that are read as two: which are, and equal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.kernel import Kernel, Repetition
from tvm_autodiff.schedule.rewrites.split_dimensions import split_dimensions

F, COUNT = "float64", 3
n = te.var("n")
q = te.placeholder((5, n * 4), F, name="q")
flat = te.placeholder((n * 4 + 4,), F, name="flat")
literal = te.placeholder((5, 12), F, name="literal")
odd = te.placeholder((5, n * 6), F, name="odd")
at = te.placeholder((5,), "int32", name="at")


def heads(body: Callable[[Any, Any, Any], Any], size: int = 4) -> Any:
    d = te.reduce_axis((0, size), "d")
    return te.compute((n, 5), lambda h, i: te.sum(body(h, i, d), axis=d), name="s")


#: name → the stage, and how many dimensions each tensor that it reads has afterwards
CASES: dict[str, tuple[Callable[[], Any], list[int] | None]] = {
    "heads": (lambda: heads(lambda h, i, d: q[i, h * 4 + d]), [3]),
    "heads in another order": (lambda: heads(lambda h, i, d: q[i, d + 4 * h] * 2.0), [3]),
    "two tensors": (lambda: heads(lambda h, i, d: q[i, h * 4 + d] * flat[4 * h + d]), [3, 2]),
    "from a later place on": (lambda: heads(lambda h, i, d: flat[h * 4 + d + 1], 3), [2]),
    "beyond a group": (lambda: heads(lambda h, i, d: flat[h * 4 + d + 1], 4), None),
    "places of another size": (lambda: heads(lambda h, i, d: q[i, h * 3 + d], 3), None),
    "in two ways": (lambda: heads(lambda h, i, d: q[i, h * 4 + d] * q[0, h], 4), None),
    "groups of groups": (lambda: heads(lambda h, i, d: odd[i, h * 6 + d]), [3]),
    "of literal extent": (lambda: heads(lambda h, i, d: literal[i, d]), None),
    "at places that data give": (lambda: heads(lambda h, i, d: q[i, at[i] * 4 + d]), None),
    "one by one": (lambda: heads(lambda h, i, d: q[i, h + d], 1), None),
}


@pytest.mark.parametrize("name", CASES)
def test_dimensions_and_values(name: str) -> None:
    make, dimensions = CASES[name]
    stage = make()
    found = split_dimensions(Kernel(stage.op))
    assert (None if found is None else [len(v.split.shape) for v in found.views.values()]) == (
        dimensions
    )
    if found is None:
        return
    rng = np.random.default_rng(0)
    whole = {t: rng.random([int(te_extent(d)) for d in shape_of(t)]) for t in (q, flat, odd)}
    split = {
        view.split: whole[view.tensor].reshape([int(te_extent(d)) for d in shape_of(view.split)])
        for view in found.views.values()
    }
    [want] = evaluate_graph([stage], list(whole.items()), {n: COUNT})
    [got] = evaluate_graph(found.kernel.outputs, [*whole.items(), *split.items()], {n: COUNT})
    np.testing.assert_allclose(got, want, rtol=1e-14)


def te_extent(extent: Any) -> int:
    """An extent for `COUNT` groups."""
    if isinstance(extent, int):
        return extent
    [value] = evaluate_graph([te.compute((1,), lambda i: extent.astype(F))], [], {n: COUNT})
    return int(value[0])


def test_an_epilogue_reads_split_tensors() -> None:
    s = heads(lambda h, i, d: q[i, h * 4 + d])
    y = te.compute((n, 5), lambda h, i: s[h, i] * q[i, h * 4], name="y")
    found = split_dimensions(Kernel(s.op, y.op))
    assert found is not None
    [view] = found.views.values()
    values = np.random.default_rng(0).random((5, 4 * COUNT))
    given = [(q, values), (view.split, values.reshape(5, COUNT, 4))]
    [want] = evaluate_graph([y], given, {n: COUNT})
    [got] = evaluate_graph(found.kernel.outputs, given, {n: COUNT})
    np.testing.assert_allclose(got, want, rtol=1e-14)


def test_what_a_loop_does_not_change_stays_known() -> None:
    kernel = Kernel(
        heads(lambda h, i, d: q[i, h * 4 + d]).op, None, Repetition(10, frozenset([tensor_key(q)]))
    )
    found = split_dimensions(kernel)
    assert found is not None
    [view] = found.views.values()
    assert tensor_key(view.split) in found.kernel.repetition.fixed
