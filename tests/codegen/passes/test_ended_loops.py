"""Loops in parts end where the elements end: no condition is left on single elements."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import s_tir, te

from tests.schedule.guard_pages import at_a_guard
from tvm_autodiff import build
from tvm_autodiff.codegen.passes.ended_loops import with_ended_loops


def doubled(shape: tuple[int, ...]) -> s_tir.Schedule:
    x = te.placeholder(shape, name="x")
    y = te.compute(shape, lambda *at: x(*at) * 2, name="y")
    return s_tir.Schedule(te.create_prim_func([x, y]))


def in_parts(count: int, parts: int) -> s_tir.Schedule:
    schedule = doubled((count,))
    [loop] = schedule.get_loops(schedule.get_sblock("y"))
    schedule.split(loop, [parts, None])
    return schedule


def in_squares(rows: int, columns: int, side: int) -> s_tir.Schedule:
    schedule = doubled((rows, columns))
    loops = schedule.get_loops(schedule.get_sblock("y"))
    (row, i), (column, j) = (schedule.split(loop, [None, side]) for loop in loops)
    schedule.reorder(row, column, i, j)
    return schedule


SCHEDULES = {
    "the last part is shorter": lambda: in_parts(11, 2),
    "parts without elements": lambda: in_parts(5, 4),
    "more parts than elements": lambda: in_parts(2, 5),
    "one element": lambda: in_parts(1, 3),
    "squares": lambda: in_squares(7, 10, 4),
    "squares that fit along one axis": lambda: in_squares(8, 10, 4),
}


@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_every_element_once_and_no_condition(make) -> None:
    func = make().mod["main"]
    assert "T.where" in func.script()
    ended = with_ended_loops(func)
    assert "T.where" not in ended.script()
    assert visited(ended) == visited(func)
    shape = [int(extent) for extent in func.params[-1].shape]
    assert sorted(visited(ended)) == list(np.ndindex(*shape))


def test_loops_of_whole_parts_stay() -> None:
    func = in_parts(12, 3).mod["main"]
    assert with_ended_loops(func).script() == func.script()


def test_a_loop_over_two_axes_ends() -> None:
    schedule = doubled((3, 5))
    loop = schedule.fuse(*schedule.get_loops(schedule.get_sblock("y")))
    schedule.split(loop, [None, 4])
    ended = with_ended_loops(schedule.mod["main"])
    assert "T.where" not in ended.script()
    assert visited(ended) == list(np.ndindex(3, 5))


def visited(func: object) -> list[tuple[int, ...]]:
    """The elements that are stored, in order, as Python reads the loops."""
    body = func.body.block.body  # type: ignore[attr-defined]
    found: list[tuple[int, ...]] = []
    _visit(body, {}, found)
    return found


def _visit(stmt: object, values: dict[str, int], found: list[tuple[int, ...]]) -> None:
    names = {"T": _Values}
    if hasattr(stmt, "loop_var"):
        for turn in range(_value(stmt.extent, values, names)):
            _visit(stmt.body, {**values, stmt.loop_var.name: turn}, found)
        return
    if _value(stmt.predicate, values, names):  # type: ignore[attr-defined]
        found.append(tuple(_value(v, values, names) for v in stmt.iter_values))


class _Values:
    """What TVM's script calls, in Python."""

    min, max, bool = staticmethod(min), staticmethod(max), staticmethod(bool)


def _value(expr: object, values: dict[str, int], names: dict) -> int:
    text = expr.script() if hasattr(expr, "script") else str(expr)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return eval(lines[-1], {**names, **values})


@pytest.mark.parametrize("count", [65537, 65536, 65539 * 3])
def test_compiled_parts_write_their_elements_alone(count: int) -> None:
    x = te.placeholder((count,), name="x")
    y = te.compute((count,), lambda i: x[i] * 2 + 1, name="y")
    values = np.arange(count, dtype="float32")
    out = at_a_guard(np.zeros(count, "float32"), "end")
    build([x], [y])(at_a_guard(values, "end"), out=[out])
    np.testing.assert_array_equal(out, values * 2 + 1)
