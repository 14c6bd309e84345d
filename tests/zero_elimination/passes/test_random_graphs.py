"""Random programs and their gradients through every transformation: the values are as before."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tests.random_programs.cases import random_case
from tvm_autodiff import (
    DenseSumWarning,
    differentiate,
    estimate_cost,
    inline_tensors,
    lift_nonzeroness_condition,
    merge_equal_stages,
    remove_unused_dims,
    simplify_reductions,
)
from tvm_autodiff.graph.stage import is_compute

pytestmark = pytest.mark.slow

TRANSFORMATIONS = {
    "simplify_reductions": simplify_reductions,
    "inline_tensors": inline_tensors,
    "remove_unused_dims": remove_unused_dims,
    "merge_equal_stages": merge_equal_stages,
    "lift_nonzeroness_condition": lambda tensors: [
        lift_nonzeroness_condition(t) if is_compute(t.op) else t for t in tensors
    ],
    "one after the other": lambda tensors: remove_unused_dims(
        simplify_reductions(inline_tensors(merge_equal_stages(tensors)))
    ),
}


def program(seed):
    """Outputs (a value and its gradients), and arrays for the inputs."""
    case = random_case(seed)
    tensors = case.program.tensors()
    inputs = [tensors[x.name] for x in case.program.inputs]
    output = tensors[case.program.output.name]
    head = te.placeholder(case.head.shape, "float64", name="head")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DenseSumWarning)
        gradients = list(differentiate(output, inputs, head))
    values = [*zip(inputs, case.inputs.values(), strict=True), (head, case.head)]
    return [output, *gradients], values


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_values_stay(first):
    for seed in range(first, first + 10):
        outputs, values = program(seed)
        expected = evaluate_graph(outputs, values)
        for name, transform in TRANSFORMATIONS.items():
            changed = transform(outputs)
            found = evaluate_graph(changed, values)
            for before, after in zip(expected, found, strict=True):
                scale = 1e-9 * (1 + np.abs(before).max(initial=0))
                np.testing.assert_allclose(
                    after, before, rtol=1e-9, atol=scale, err_msg=f"seed {seed}, {name}"
                )
            if name == "simplify_reductions":
                more = estimate_cost(changed).iterations - estimate_cost(outputs).iterations
                assert more <= 0, f"seed {seed}"
