"""Every kind of stage: what it answers, and that no rewrite of graphs loses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.graph.kinds.stages import EXAMPLES, arrays, graph, inputs
from tvm_autodiff.codegen.stages.sizes import with_plain_sizes
from tvm_autodiff.expr.nodes import load
from tvm_autodiff.graph.free_variables import free_variables
from tvm_autodiff.graph.graph import rebuild, replace_tensors, retarget, topological
from tvm_autodiff.graph.kinds.kind import Input, Kind, Opaque, kind_of
from tvm_autodiff.graph.kinds.rules.table import TABLE
from tvm_autodiff.graph.kinds.update_loops import UpdateLoops, update_stage
from tvm_autodiff.graph.stage import placeholder_like, reduce_axis
from tvm_autodiff.graph.structural import StageKeys
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.zero_elimination import (
    inline_tensors,
    merge_equal_stages,
    remove_unused_dims,
    simplify_reductions,
)
from tvm_autodiff.zero_elimination.walk import each_stage

each_kind = pytest.mark.parametrize("name", EXAMPLES)


def test_every_kind_has_rules_and_an_example() -> None:
    assert {*TABLE, Input} == set(get_args(Kind))
    assert set(EXAMPLES) == {kind.__name__ for kind in TABLE}


def over_fresh_inputs(outputs: list[te.Tensor]) -> list[te.Tensor]:
    """Each input replaced by a copy of it, by a stage in between, so that everything is rebuilt."""
    read = [op.output(0) for op in topological(outputs) if not op.input_tensors]
    copies = {t: te.compute(t.shape, lambda *i: t(*i), name=t.op.name) for t in read}  # noqa: B023
    return rebuild(outputs, lambda tensor: copies.get(tensor))


def renamed(outputs: list[te.Tensor]) -> list[te.Tensor]:
    """Over other inputs and back."""
    read = [op.output(0) for op in topological(outputs) if not op.input_tensors]
    fresh = [placeholder_like(tensor) for tensor in read]
    there = replace_tensors(outputs, list(zip(read, fresh, strict=True)))
    return replace_tensors(there, list(zip(fresh, read, strict=True)))


#: what rewrites whole graphs
REWRITES: dict[str, Callable[[list[te.Tensor]], list[te.Tensor]]] = {
    "rebuild": over_fresh_inputs,
    "replace_tensors": renamed,
    "each_stage": lambda outputs: each_stage(over_fresh_inputs(outputs), lambda op: outs(op)),
    "inline_tensors": inline_tensors,
    "remove_unused_dims": remove_unused_dims,
    "merge_equal_stages": merge_equal_stages,
    "simplify_reductions": simplify_reductions,
    "normal_form": normal_form,
    "all in turn": lambda outputs: normal_form(
        merge_equal_stages(simplify_reductions(remove_unused_dims(inline_tensors(outputs))))
    ),
}


def outs(op):
    return [op.output(n) for n in range(op.num_outputs)]


@each_kind
@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_rewrite_keeps_the_kind_and_the_value(name: str, rewrite: str) -> None:
    given, values = inputs(), arrays()
    outputs = graph(EXAMPLES[name], given)
    rewritten = REWRITES[rewrite](outputs)
    kinds = [type(kind_of(op)) for op in topological(rewritten)]
    assert EXAMPLES[name].kind in kinds
    wanted = EXAMPLES[name].value(values[0] * 3.0, *values[1:])
    # together: a build for each would take twice as long
    found = ad.build(given, rewritten, cache=False, num_threads=1)(*values)
    for got, want in zip(found, [wanted[0] + 1.0, *wanted], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def run(tensor: te.Tensor, given: list[te.Tensor], values: list[np.ndarray]) -> np.ndarray:
    return ad.build(given, tensor, cache=False, num_threads=1)(*values)


@each_kind
def test_inputs_are_substituted_where_two_become_one(name: str) -> None:
    """A stage that reads a tensor twice after two of its inputs were merged."""
    given, values = inputs(), arrays()
    x, p, _ = given
    outputs = EXAMPLES[name].make(x, p, te.placeholder((5,), "int32", name="other"))
    other = next((t for t in outputs[0].op.input_tensors if t.op.name == "other"), None)
    merged = retarget(outputs[0].op, lambda tensor: p if other == tensor else None)
    assert type(kind_of(merged[0].op)) is EXAMPLES[name].kind
    bounded = [values[0], values[1] % 4, values[1] % 4]
    wanted = EXAMPLES[name].value(*bounded)
    np.testing.assert_allclose(run(merged[0], given, bounded), wanted[0], rtol=1e-13)


@each_kind
def test_equal_stages_have_equal_keys_and_others_do_not(name: str) -> None:
    given, keys = inputs(), StageKeys()
    x, p, n = given
    make = EXAMPLES[name].make
    first, again = make(x, p, n)[0].op, make(x, p, n)[0].op
    other = make(placeholder_like(x), p, n)[0].op
    assert keys.stage(first) != keys.stage(other)
    assert (keys.stage(first) == keys.stage(again)) == (EXAMPLES[name].kind is not Opaque)


@pytest.mark.parametrize(
    ("name", "iterations", "multiplications", "memory"),
    [
        # 5 rows of 3, each with a product; the condition costs nothing
        ("Compute", 15, 15, 5),
        # one step an element
        ("Scan", 15, 15, 15),
        # 12 elements cleared, 15 updates added
        ("ScatterAdd", 27, 0, 12),
        # 12 elements cleared; 5 rows of two updates on average, each with a product
        ("UpdateLoops", 12 + 5 * 2, 5 * 2, 12),
        # 5 steps: one scale, 15 new elements with two products each, 15 copied; memory is what one
        # step computes, and what is stacked
        ("Loop", 5 * (1 + 15 + 15), 5 * 30, 31 + 5 * 15),
        # the same, and two states
        ("KeptLoop", 5 * (1 + 15 + 15), 5 * 30, 31 + 5 * 15 + 2 * 15),
        # the loop that keeps the states; 5 steps back of 15 and 5 elements, and two of 15 ahead
        # again; memory is that of all steps, of what is stacked, of two states twice, and of which
        # they are
        (
            "Rewind",
            5 * 15 + 5 * 20 + 2 * 15,
            5 * 30 + 5 * 35 + 2 * 30,
            15 + 2 * 15 + 20 + 15 + 5 * 5 + 2 * 15 + 2,
        ),
        # 5 elements written, 15 read
        ("Opaque", 20, 0, 5),
    ],
)
def test_cost(name: str, iterations: int, multiplications: int, memory: int) -> None:
    tensor, *_ = EXAMPLES[name].make(*inputs())
    average = {var: 2 for axis in loops_of(tensor.op) for var in [axis.var] if var.name == "k"}
    cost = ad.estimate_cost(tensor, average)
    assert cost == ad.Cost(iterations, multiplications, memory)


def loops_of(op):
    return getattr(kind_of(op), "axes", ())


@each_kind
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"show_kind_{name}.txt", ad.show(graph(EXAMPLES[name], inputs())))


@each_kind
def test_a_free_variable_is_found_where_it_is_named(name: str) -> None:
    """Sizes of shapes; of loops over updates those in values and bounds, too."""
    assert free_variables(EXAMPLES[name].make(*inputs())[0].op) == []


def test_the_free_variables_of_loops_over_updates() -> None:
    x, p, _ = inputs()
    size, scale = te.var("size"), te.var("scale", "float64")
    i = reduce_axis("i", size)
    loops = UpdateLoops((i,), (), (load(p, [i.var]),), load(x, [i.var, 0]) * scale)
    assert free_variables(update_stage("U", loops, (4,)).op) == [size, scale]


@each_kind
def test_sizes_in_expressions_of_dimensions_are_renamed_or_refused(name: str) -> None:
    """`with_plain_sizes` keeps the kind of a stage that uses none of the sizes it renames."""
    size = te.var("size")
    other = te.placeholder((2 * size,), name="other")
    given = [*inputs(), other]
    outputs = EXAMPLES[name].make(*given[:3])
    fresh, moved = with_plain_sizes(given, outputs)
    assert all(type(kind_of(tensor.op)) is EXAMPLES[name].kind for tensor in moved)
    assert {t.op.name for t in fresh} == {"x", "p", "n", "other"}


def test_the_evaluator_of_tests_agrees() -> None:
    """numpy's values of the examples are those of the loop nests that te.compute has."""
    given, values = inputs(), arrays()
    [tensor] = EXAMPLES["Compute"].make(*given)
    found = evaluate_graph([tensor], dict(zip(given, values, strict=True)))
    np.testing.assert_allclose(found[0], EXAMPLES["Compute"].value(*values)[0])
