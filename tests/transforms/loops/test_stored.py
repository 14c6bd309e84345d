"""What reverse mode stacks of a step."""

from __future__ import annotations

from tvm import te

from tests.transforms.loops.recurrences import D, each, times
from tvm_autodiff.graph.kinds.loop import step_of
from tvm_autodiff.transforms.loops.stored import stored_tensors


def step_and_stages():
    shapes = {"h": (4,), "x": (4,), "w": (4, 4), "u": (4, 4)}
    h, x, w, u = (te.placeholder(shape, D, name=name) for name, shape in shapes.items())
    stages = {"h": h, "a": times(w, h), "b": times(u, x)}
    stages["sum"] = each(lambda a, b: a + b, stages["a"], stages["b"])
    stages["double"] = each(lambda a: a + a, stages["a"])
    stages["scaled"] = each(lambda h, x: h * x, h, x)
    stages["exp"] = each(te.exp, stages["sum"])
    stages["x"], stages["w"] = x, w
    outputs = [stages["exp"], stages["double"], stages["scaled"]]
    return step_of([h], [x], [w, u], outputs[:1], outputs[1:]), stages


def names_of(read: list[str], *, carries_only: bool = False) -> list[str]:
    step, stages = step_and_stages()
    found = stored_tensors(step, [stages[name] for name in read], carries_only=carries_only)
    return [next(n for n, t in stages.items() if t.op == one.op) for one in found]


def test_carries_and_costly_stages_are_stored() -> None:
    assert names_of(["h", "a", "exp"]) == ["h", "a", "exp"]


def test_sequences_and_constants_are_there_already() -> None:
    assert names_of(["x", "w"]) == []


def test_cheap_stages_are_computed_again_from_what_takes_no_more_memory() -> None:
    assert names_of(["double"]) == ["a"]
    assert names_of(["scaled"]) == ["h"]


def test_a_cheap_stage_of_two_costly_ones_is_stored_itself() -> None:
    assert names_of(["sum"]) == ["sum"]


def test_what_is_stored_anyway_costs_nothing() -> None:
    assert names_of(["sum", "a"]) == ["a", "b"]
    assert names_of(["sum", "a", "b", "double"]) == ["a", "b"]


def test_carries_alone() -> None:
    assert names_of(["sum", "exp", "scaled"], carries_only=True) == ["h"]
