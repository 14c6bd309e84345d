"""Random programs in the other modes: tangents beside the reference's gradients, and batches beside
their members.

``⟨u, Jv⟩`` must be ``⟨Jᵀu, v⟩`` with the ``Jᵀu`` of the reference, within what the reference
allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te

from tests.evaluate import evaluate_graph, numpy_dtype, stages_of
from tests.random_programs.cases import Call, Case, Wanted, random_case
from tests.random_programs.checking import Made, furthest, quietly
from tests.random_programs.interpreter import eps
from tvm_autodiff import jvp, vmap

#: modes of a case whose reference holds gradients for one cotangent of the output's shape
PULLED = ("plain", "backward")


@dataclass(frozen=True)
class Modes:
    """Programs of some seeds, pushed forward and batched."""

    features: tuple[str, ...]
    seeds: tuple[int, ...]

    def perform(self) -> list[str]:
        """What is wrong with the programs."""
        return [c for seed in self.seeds for c in complaints(random_case(seed, self.features))]

    def __str__(self) -> str:
        ends = f"{self.seeds[0]}" + (f" to {self.seeds[-1]}" if len(self.seeds) > 1 else "")
        return f"seed {ends} of {', '.join(self.features)}, in other modes"


def complaints(case: Case) -> list[str]:
    """What is wrong with the tangents and batches of a case."""
    try:
        with quietly():
            made = Made(case)
            return [c for call in case.calls for c in (*_tangents(made, call), *_batch(made, call))]
    except Exception as error:  # any exception is a finding, to be shown with its program
        return [f"seed {case.seed}, other modes: {type(error).__name__}: {error}"]


def _tangents(made: Made, call: Call) -> Iterator[str]:
    case, program = made.case, made.case.program
    if case.mode not in PULLED:
        return
    floats = [x for x in program.inputs if x.is_float]
    rng = np.random.default_rng(case.seed)
    inputs = [made.tensors[x.name] for x in floats]
    moving = [te.placeholder(t.shape, str(t.dtype), name=f"t_{t.op.name}") for t in inputs]
    along = [
        rng.uniform(-1, 1, np.shape(call.inputs[x.name])).astype(numpy_dtype(x.dtype))
        for x in floats
    ]
    output = made.tensors[program.differentiable]
    tangents = jvp(output, inputs, moving)
    listed = [np.asarray(call.inputs[x.name]) for x in program.inputs]
    values = [*zip(made.inputs, listed, strict=True), *zip(moving, along, strict=True)]
    [found] = evaluate_graph(tangents, values, made.sizes(call), strict=True)
    head = np.asarray(call.head).astype(numpy_dtype(program.output.dtype)).astype(float)
    pushed = head * np.asarray(found).astype(float)
    right, allowed, size = 0.0, 0.0, float(np.abs(pushed).sum())
    for x, v in zip(floats, along, strict=True):
        wanted = call.wanted[f"d/d{x.name}"]
        terms = wanted.value * v.astype(float)
        right += float(terms.sum())
        allowed += float((wanted.tolerance * np.abs(v.astype(float))).sum())
        size += float(np.abs(terms).sum())
    rounding = max([eps(str(t.dtype)) for t in (*inputs, *tangents)])
    left = float(pushed.sum())
    if not abs(left - right) <= allowed + 64 * rounding * size:
        yield (
            f"seed {case.seed}, tangents{_sizes(call)}: <u, Jv> is {left}, <J^T u, v> is {right} "
            f"within {allowed + 64 * rounding * size:.2g}"
        )


def _batch(made: Made, call: Call) -> Iterator[str]:
    """Two members, of which the second has inputs of its own, beside each alone."""
    case = made.case
    arrays = made.arrays(call)
    tensors = [*made.inputs, *made.heads]
    rng = np.random.default_rng(case.seed)
    chosen = [place for place in range(len(tensors)) if rng.random() < 0.7] or [0]
    second = [
        array[::-1].copy() if place in chosen and array.ndim else array
        for place, array in enumerate(arrays)
    ]
    batches: dict[Any, Any] = {
        tensors[n]: te.placeholder((2, *tensors[n].shape), str(tensors[n].dtype), name=f"b{n}")
        for n in chosen
    }
    members = [np.stack([arrays[n], second[n]]) for n in chosen]
    known = list(zip(tensors, arrays, strict=True))
    values = [*known, *zip(batches.values(), members, strict=True)]
    sizes = made.sizes(call)
    used = {k: v for k, v in batches.items() if _is_read(made.outputs, k)}
    if not used:
        return
    together = evaluate_graph(vmap(made.outputs, used), values, sizes, strict=True)
    for number, own in enumerate((arrays, second)):
        alone = evaluate_graph(
            made.outputs, list(zip(tensors, own, strict=True)), sizes, strict=True
        )
        for label, whole, part in zip(made.labels, together, alone, strict=True):
            value, dtype = np.asarray(part).astype(float), np.asarray(part).dtype
            close = 1e-30 if dtype.kind in "iub" else 64 * eps(str(dtype))
            close *= 1 + np.abs(value[np.isfinite(value)]).max(initial=0)
            defined = np.isfinite(value)  # data that nobody drew for it may leave the domain
            wrong = furthest(
                np.where(defined, whole[number], 0),
                Wanted(np.where(defined, value, 0), np.full(value.shape, close)),
            )
            if wrong:
                yield f"seed {case.seed}, member {number} of {label}{_sizes(call)}: {wrong}"


def _is_read(outputs: list[Any], tensor: Any) -> bool:
    return any(op.same_as(tensor.op) for op in stages_of(outputs))


def _sizes(call: Call) -> str:
    return "".join(f", {n}={v}" for n, v in call.sizes.items())
