"""Random programs given to the library: its values and gradients against the references."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from tvm import te

from tests.evaluate import evaluate_graph, numpy_dtype, stages_of
from tests.random_programs.cases import Call, Case, Wanted
from tests.random_programs.large import LargeCase, large_complaints
from tests.schedule.guard_pages import at_a_guard, shape_of
from tvm_autodiff import build, differentiate, estimate_cost

#: what a gradient of a cheap program may take: iterations for each element that is held
MOST_ITERATIONS = 8


class Made:
    """What the library makes of a case: inputs, outputs and their labels."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.tensors = case.program.tensors()
        program = case.program
        self.inputs = [self.tensors[x.name] for x in program.inputs]
        floats = [x for x in program.inputs if x.is_float]
        output = self.tensors[program.differentiable]
        self.heads: list[Any] = []
        self.outputs = (
            []
            if case.mode in ("backward", "second")
            else [self.tensors[name] for name in program.output.outputs]
        )
        self.labels = list(program.output.outputs) if self.outputs else []
        if case.mode == "forward":
            return
        if case.mode != "jacobian":
            prefix = (2,) if case.mode == "prefix" else ()
            shape = (*prefix, *output.shape)
            self.heads.append(te.placeholder(shape, str(output.dtype), name="head"))
        head = self.heads[0] if self.heads else None
        if case.mode == "second":
            self._second(output, floats, head)
            return
        targets = [self.tensors[x.name] for x in floats]
        gradients = list(differentiate(output, targets, head))
        if case.cheap:
            self.cost = estimate_cost(gradients).iterations
        self.outputs += gradients
        self.labels += [f"d/d{x.name}" for x in floats]

    def _second(self, output: Any, floats: Sequence[Any], head: Any) -> None:
        target = self.case.second
        first = next(iter(differentiate(output, [self.tensors[target]], head)))
        self.heads.append(te.placeholder(first.shape, str(first.dtype), name="head2"))
        inputs = [self.tensors[x.name] for x in floats]
        again = list(differentiate(first, [*inputs, head], self.heads[1]))
        self.outputs += [first, *again]
        names = [*(x.name for x in floats), "head"]
        self.labels += [f"d/d{target}", *(f"d/d{name} of d/d{target}" for name in names)]

    def arrays(self, call: Call) -> list[np.ndarray]:
        """Arrays for the inputs and then the cotangents."""
        dtype = numpy_dtype(self.case.program.output.dtype)
        heads = [np.asarray(call.head).astype(dtype)]
        if call.second_head is not None:
            heads.append(np.asarray(call.second_head))
        listed = [np.asarray(call.inputs[x.name]) for x in self.case.program.inputs]
        return [*listed, *heads[: len(self.heads)]]

    def empty(self, call: Call) -> list[np.ndarray]:
        """Arrays that the outputs are to be written into."""
        sizes = self.sizes(call)
        shapes = [shape_of(tensor, sizes) for tensor in self.outputs]
        dtypes = [numpy_dtype(str(tensor.dtype)) for tensor in self.outputs]
        return [np.full(shape, 77, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]

    def sizes(self, call: Call) -> dict[Any, int]:
        return {self.tensors[name]: value for name, value in call.sizes.items()}

    def judge(self, call: Call, found: Sequence[np.ndarray]) -> Iterator[str]:
        for label, got in zip(self.labels, found, strict=True):
            if label in call.wanted:
                complaint = furthest(got, call.wanted[label])
                if complaint:
                    sizes = "".join(f", {n}={v}" for n, v in call.sizes.items())
                    yield f"seed {self.case.seed}, {label}{sizes}: {complaint}"


def furthest(got: np.ndarray, wanted: Wanted) -> str | None:
    """What is wrong with `got`, at its worst entry; None where it is close everywhere."""
    got = np.asarray(got).astype(float)
    if got.shape != wanted.value.shape:
        return f"shape {got.shape}, expected {wanted.value.shape}"
    with np.errstate(all="ignore"):
        excess = np.abs(got - wanted.value) / wanted.tolerance
    excess = np.where(got == wanted.value, 0.0, excess)
    excess = np.where(np.isnan(excess), np.inf, excess)
    if not excess.size or excess.max() <= 1:
        return None
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    return (
        f"{got[worst]} at {[int(i) for i in worst]}, expected {wanted.value[worst]} within "
        f"{wanted.tolerance[worst]:.2g} ({int((excess > 1).sum())} of {got.size} entries wrong)"
    )


@contextmanager
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a dense fallback is slow, and still has to be right
        yield


def evaluated(case: Case | LargeCase) -> list[str]:
    """What is wrong with a case when the library's tensors are evaluated in numpy."""
    if isinstance(case, LargeCase):
        return large_complaints(case, compiled=False)
    try:
        with quietly():
            made = Made(case)
            wrong = expensive(made)
            for call in case.calls:
                values = list(zip([*made.inputs, *made.heads], made.arrays(call), strict=True))
                sizes = made.sizes(call)
                wrong += made.judge(call, evaluate_graph(made.outputs, values, sizes, strict=True))
        return wrong
    except Exception as error:  # any exception is a finding, to be shown with its program
        return [f"seed {case.seed}: {type(error).__name__}: {error}"]


def expensive(made: Made) -> list[str]:
    """Whether a gradient that should be cheap is not."""
    case = made.case
    if not case.cheap:
        return []
    elements = sum(np.size(array) for array in (*case.inputs.values(), case.head))
    if made.cost <= MOST_ITERATIONS * elements:
        return []
    return [f"seed {case.seed}: {made.cost} iterations for {elements} elements"]


def compiled(cases: Sequence[Case | LargeCase]) -> list[str]:
    """What is wrong with cases that are compiled as one function.

    The arrays of a call touch pages that no one may read: a read outside of them ends the process.
    """
    large = [case for case in cases if isinstance(case, LargeCase)]
    found = [complaint for case in large for complaint in large_complaints(case, compiled=True)]
    small = [case for case in cases if isinstance(case, Case)]
    return found + (_compiled(small) if small else [])


def _compiled(cases: Sequence[Case]) -> list[str]:
    try:
        with quietly():
            made = [Made(case) for case in cases]
            inputs = [t for one in made for t in (*one.inputs, *one.heads)]
            outputs = [t for one in made for t in one.outputs]
            places = _reached(inputs, outputs)
            function = build([inputs[place] for place in places], outputs, cache=False)
            wrong: list[str] = []
            for number in range(max(len(case.calls) for case in cases)):
                calls = [case.calls[min(number, len(case.calls) - 1)] for case in cases]
                pairs = list(zip(made, calls, strict=True))
                arrays = [array for one, call in pairs for array in one.arrays(call)]
                empty = [array for one, call in pairs for array in one.empty(call)]
                for end in ("end", "begin"):
                    given = (at_a_guard(arrays[place], end) for place in places)
                    out = [at_a_guard(array, end) for array in empty]
                    results = iter(function(*given, out=out))
                    for one, call in pairs:
                        found = [np.asarray(next(results)) for _ in one.outputs]
                        if number < len(one.case.calls):
                            wrong += one.judge(call, found)
        return list(dict.fromkeys(wrong))
    except Exception as error:
        return [f"seed {cases[0].seed}...: {type(error).__name__}: {error}"]


def _reached(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[int]:
    """Places of inputs that are read, or that sizes come from."""
    seen = {hash(op) for op in stages_of(outputs)}
    return [
        place
        for place, tensor in enumerate(inputs)
        if hash(tensor.op) in seen or any(not hasattr(dim, "value") for dim in tensor.shape)
    ]


def source_of(case: Case | LargeCase) -> str:
    """te code of the program, and how it was asked for."""
    sizes = "; ".join(str(dict(call.sizes)) for call in case.calls if call.sizes)
    return f"{case.program.source()}# {case.mode}{', called with ' + sizes if sizes else ''}\n"
