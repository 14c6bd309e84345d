"""`vjp` and `linearize` on arrays: a first program that keeps residuals, and a second one for
derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..compile import build
from ..containers import Form, matched, paths
from ..errors import CallError, NotDifferentiableError
from ..expr.nodes import Tensor, is_float
from ..graph.stage import placeholder_like
from ..partition.joint import Sizes
from ..partition.split import split
from ..runtime.arrays import numpy_dtype
from ..runtime.compiled import CompiledFunction
from .array_function import ArrayFunction, called_again, derived, plain_outputs
from .modes import pulled, pushed
from .signature import Signature
from .tracing import Trace, described, identifier


@dataclass(frozen=True)
class SplitProgram:
    """Two compiled functions.

    Attributes
    ----------
    first : CompiledFunction
        A function from the leaves of the arguments to the leaves of the result, and residuals.
    form : Form
        The form of the result.
    second : CompiledFunction
        A function from residuals, and cotangents or tangents, to the derivatives.
    passed, kept : tuple of int
        The leaves of the arguments, and then the outputs of the first function, that are residuals.
    later : Form
        The form of the arguments of the second function.
    taken : tuple of bool
        The leaves of these that have derivatives.
    result : Form
        The form of the derivatives.
    given : tuple of bool
        The leaves of the derivatives that are floating point; the others are None.
    """

    first: CompiledFunction
    form: Form
    second: CompiledFunction
    passed: tuple[int, ...]
    kept: tuple[int, ...]
    later: Form
    taken: tuple[bool, ...]
    result: Form
    given: tuple[bool, ...]

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """The result, and a function of cotangents or tangents."""
        given, results = _called(self.first, leaves)
        outputs = results[: self.form.count]
        residuals = [_own(given[n]) for n in self.passed]
        residuals += [_own(results[n]) if n < len(outputs) else results[n] for n in self.kept]

        def later(value: Any) -> Any:
            found = matched(value, self.later, "the argument")
            arguments = list(residuals)
            specs = iter(self.second.signature.inputs[len(residuals) :])
            for leaf, taken, path in zip(
                found, self.taken, paths(self.later, "the argument"), strict=True
            ):
                if taken:
                    spec = next(specs)
                    if leaf is None:  # zeros
                        leaf = np.zeros(spec.shape, numpy_dtype(spec.dtype))
                    arguments.append(leaf)
                elif leaf is not None:
                    raise CallError(f"{path} has no derivative: pass None")
            derivatives = iter(_called(self.second, arguments)[1])
            return self.result.filled([next(derivatives) if g else None for g in self.given])

        return self.form.filled(outputs), later


def _own(array: Any) -> Any:
    """A copy of an array that the caller may change."""
    return array.copy() if isinstance(array, np.ndarray) else array


def _called(function: CompiledFunction, leaves: Sequence[Any]) -> tuple[Sequence[Any], list[Any]]:
    try:
        return leaves, function(*leaves)
    except CallError:
        return called_again(function, leaves)


class SplitFunction(ArrayFunction):
    """A function that returns its result and a function of cotangents or tangents."""

    forward: ClassVar[bool]  #: whether the second function takes tangents

    def _built(self, trace: Trace, signature: Signature) -> SplitProgram:
        outputs = plain_outputs(trace.outputs)
        inputs = trace.inputs
        if not any(map(is_float, inputs)) or not any(map(is_float, outputs)):
            what = "argument" if any(map(is_float, outputs)) else "result"
            raise NotDifferentiableError(
                f"no {what} of {described(self.function)} is floating point: there is no derivative"
            )
        form = signature.form.parts[0]
        forward = self.forward
        ins, outs = (inputs, outputs) if forward else (outputs, inputs)
        around = (form, trace.form) if forward else (trace.form, form)
        words = paths(around[0], "tangents" if forward else "cotangent")
        later = [
            placeholder_like(t, identifier(word)) if is_float(t) else None
            for t, word in zip(ins, words, strict=True)
        ]
        derived = (pushed if forward else pulled)(outputs, inputs, later)
        passes, _ = split(inputs, outputs, _present(derived), _present(later), Sizes({}))
        options = self._build_options(signature)
        return SplitProgram(
            build(passes.forward.inputs, passes.forward.outputs, **options),
            trace.form,
            build(passes.backward.inputs, passes.backward.outputs, **options),
            passes.passed,
            passes.kept,
            around[0],
            tuple(tensor is not None for tensor in later),
            around[1],
            tuple(map(is_float, outs)),
        )


class Pullbacks(SplitFunction):
    """`vjp` of a function."""

    forward = False


class Linearizations(SplitFunction):
    """`linearize` of a function."""

    forward = True


def _present(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor is not None]


def two_passes(
    f: Callable[..., Any], kind: type[SplitFunction], primals: Sequence[Any]
) -> tuple[Any, Callable[[Any], Any]]:
    """The result of a function for arrays, and the function of cotangents or tangents."""
    return derived(f, kind.__name__, partial(f), kind)(*primals)
