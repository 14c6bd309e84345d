"""Compares programs for a GPU with numpy, in groups whose kernels are compiled at once.

A program fails if its results differ from an evaluation in numpy (`tests.evaluate`), or if its
kernels do something wrong while they run (`programs.Findings`). Where it is asked for, a program
must also have the schedules that were chosen, and CUDA's own compiler must take its kernels.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tvm import sym

from tests.cuda_on_cpu.compiler import missing
from tests.cuda_on_cpu.programs import Program, compile_together
from tests.evaluate import evaluate_graph, floats_as_float64
from tests.schedule.cuda.nvcc import NVCC, compile_with_nvcc
from tvm_autodiff import PlainScheduleWarning
from tvm_autodiff.expr.nodes import const_value
from tvm_autodiff.expr.rewrite import variables_of
from tvm_autodiff.schedule.cuda.rules import CUDA_RULES

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Case:
    """A program, and calls of it.

    Attributes
    ----------
    inputs, outputs : sequence of Tensor
    calls : sequence of sequences of arrays
        The arrays of each call, in order.
    tolerance : float
        Of the results; 0 requires equal bits.
    wanted : callable, optional
        Gives the results for the arrays of a call, if an evaluation would take too long.
    rules : sequence
        The schedule rules that it is built with.
    wide : bool
        Whether numpy computes all floats as float64.
    """

    inputs: Sequence[Any]
    outputs: Sequence[Any]
    calls: Sequence[Arrays]
    tolerance: float = 0.0
    wanted: Callable[..., Sequence[np.ndarray]] | None = None
    rules: Sequence[Any] = CUDA_RULES
    wide: bool = False


def evaluated(case: Case, arrays: Arrays) -> list[np.ndarray]:
    """The results of a call, evaluated in numpy."""
    pairs = list(zip(case.inputs, arrays, strict=True))
    sizes = {}
    for tensor, array in pairs:
        for dim, size in zip(tensor.shape, array.shape, strict=True):
            if not hasattr(dim, "value"):
                sizes |= {dim: size, **_size_in(dim, size)}
    with floats_as_float64() if case.wide else contextlib.nullcontext():
        return evaluate_graph(case.outputs, pairs, sizes)


def _size_in(dim, size):
    """``n + 2 = 7 → n = 5``: the size that a dimension of another one gives, if it does."""
    names = {var.name: var for var in variables_of(dim)}
    if len(names) != 1:
        return {}
    [var] = names.values()
    apart = const_value(sym.Analyzer().simplify(dim - var))
    return {} if apart is None else {var: size - apart}


def failures(cases: Mapping[str, Case], sources: bool) -> dict[str, str]:
    """What is wrong with the programs that fail, by name."""
    with warnings.catch_warnings():
        # how fast a program is, and which schedule it has, is not tested here
        warnings.simplefilter("ignore", PlainScheduleWarning)
        programs = {
            name: Program(case.inputs, list(case.outputs), rules=case.rules)
            for name, case in cases.items()
        }
    if sources:
        assert [name for name, program in programs.items() if program.given_up] == []
        if NVCC:
            compile_with_nvcc({name: program.source.text for name, program in programs.items()})
    compile_together(program.source for program in programs.values())
    wrong = {name: _wrong(case, programs[name]) for name, case in cases.items()}
    return {name: text for name, text in wrong.items() if text}


def _wrong(case: Case, program: Program) -> str:
    try:
        for arrays in case.calls:
            _compare(case, program(*arrays), arrays)
    except AssertionError as error:
        return str(error)[:2000]
    return ""


def _compare(case: Case, results: Arrays, arrays: Arrays) -> None:
    wanted = case.wanted(*arrays) if case.wanted is not None else evaluated(case, arrays)
    for number, (got, want) in enumerate(zip(results, wanted, strict=True)):
        message = f"result {number}, called with {[array.shape for array in arrays]}"
        if case.tolerance:
            bound = case.tolerance
            got = np.asarray(got, want.dtype)  # numpy compares no numbers of 16 bits
            np.testing.assert_allclose(got, want, rtol=bound, atol=bound, err_msg=message)
        else:
            np.testing.assert_array_equal(got, want, err_msg=message)


def check(cases: Mapping[str, Case], *, sources: bool = False) -> None:
    """Fail with everything that is wrong with the programs; skip if kernels cannot be run.

    With `sources`, none of their schedules may be given up, and nvcc compiles their kernels.
    """
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    assert failures(cases, sources) == {}


def groups(names: Sequence[str], size: int = 12) -> list[Any]:
    """Consecutive names in groups of `size`, as parameters of a test."""
    parts = [list(names)[first : first + size] for first in range(0, len(names), size)]
    return [pytest.param(part, id=f"{part[0]} .. {part[-1]}") for part in parts]
