"""2,000 random programs: values and gradients against an interpreter and its central differences.

A block of programs is compiled as one function, which is cheaper than compiling each alone. When a
block is wrong its programs are compiled one by one, and the failing ones are shown as te code, the
first of them in the smallest form that still fails.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from tvm import te

from tests.numeric import mismatch, reached, run
from tests.random_programs import Case, case_of, random_case
from tests.tensor_programs import IllegalRead, Program, shrink
from tvm_autodiff.reverse import differentiate

PROGRAMS = 2000
BLOCK = 25
RTOL, ATOL = 1e-6, 1e-6  # the differences are good to about 1e-9 of the largest value


def tensors_of(case: Case) -> tuple[list, list, list[str]]:
    """Placeholders with the head, outputs (the value, then one gradient an input), their names."""
    tensors = case.program.tensors()
    inputs = [tensors[name] for name, _ in case.program.inputs]
    output = tensors[case.program.output.name]
    head = te.placeholder(case.head.shape, "float64", name="head")
    gradients = list(differentiate(output, inputs, head))
    names = [case.program.output.name] + [f"d/d{name}" for name, _ in case.program.inputs]
    return [*inputs, head], [output, *gradients], names


def complaints(cases: Sequence[Case]) -> list[str]:
    """What is wrong with the cases, compiled as one function; the exception where that fails."""
    inputs: list = []
    outputs: list = []
    labels: list[str] = []
    arrays: list[np.ndarray] = []
    wanted: list[np.ndarray] = []
    try:
        for case in cases:
            placeholders, results, names = tensors_of(case)
            inputs += placeholders
            outputs += results
            labels += [f"seed {case.seed}, {name}" for name in names]
            arrays += [*case.inputs.values(), case.head]
            wanted += [case.output, *case.gradients.values()]
        places = reached(inputs, outputs)
        found = run([inputs[p] for p in places], outputs, [arrays[p] for p in places])
    except Exception as error:  # any exception is a finding, to be shown with its program
        return [f"seed {cases[0].seed}...: {type(error).__name__}: {error}"]
    wrong = [
        (label, mismatch(got, want, RTOL, ATOL * (1 + np.abs(want).max(initial=0))))
        for label, got, want in zip(labels, found, wanted, strict=True)
    ]
    return [f"{label}: {complaint}" for label, complaint in wrong if complaint]


def still_fails(program: Program, seed: int) -> bool:
    """Whether a smaller program makes sense and is wrong too."""
    try:
        case = case_of(program, np.random.default_rng(seed), seed)
        program.tensors()
    except (IllegalRead, KeyError, IndexError, TypeError, ValueError, RuntimeError):
        return False
    return case is not None and bool(complaints([case]))


def report(cases: Sequence[Case]) -> str:
    """The failing programs among the cases, each with its complaints and its te code."""
    parts = []
    for case in cases:
        wrong = complaints([case])
        if wrong:
            parts.append("\n".join([*wrong, case.program.source()]))
            if len(parts) == 1:
                smallest = shrink(case.program, partial(still_fails, seed=case.seed))
                parts[0] += f"which shrinks to\n{smallest.source()}"
    return "\n".join(parts) or "only together, not one by one: an effect between programs"


@pytest.mark.parametrize("first", range(0, PROGRAMS, BLOCK))
def test_value_and_gradient(first: int) -> None:
    cases = [random_case(seed) for seed in range(first, first + BLOCK)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a dense fallback is slow, and still has to be right
        wrong = complaints(cases)
        if wrong:
            pytest.fail("\n".join([*wrong, report(cases)]), pytrace=False)


def test_the_checker_sees_a_wrong_gradient() -> None:
    case = random_case(0)
    assert complaints([case]) == []
    name, gradient = next(item for item in case.gradients.items() if item[1].any())
    gradient.flat[np.argmax(np.abs(gradient))] += 1e-4 * (1 + np.abs(gradient).max())
    [complaint] = complaints([case])
    assert f"d/d{name}" in complaint


def test_programs_cover_what_they_should() -> None:
    cases = [random_case(seed) for seed in range(300)]
    sources = [case.program.source() for case in cases]
    for feature, least in {
        "te.sum(": 80, "te.max(": 15, "te.min(": 15, "prod(": 20, "where=": 20, "init=": 10,
        "//": 80, "%": 80, "* -": 120, "te.truncdiv": 15, "te.truncmod": 15, "if_then_else": 60,
        "Select": 20, "tirx.Max": 60, "te.abs": 20, "Cast": 15, "S2": 30, "te.placeholder((),": 5,
    }.items():  # fmt: skip
        assert sum(feature in source for source in sources) >= least, feature
    assert sum(any(g.any() for g in case.gradients.values()) for case in cases) >= 280
