"""Programs of te tensors, and the programs that JAX's transforms derive from them."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ...compile import build
from ...errors import NotDifferentiableError
from ...expr.nodes import Tensor, dtype_of, is_float
from ...functions.array_function import plain_outputs
from ...functions.modes import pulled, pushed
from ...graph.graph import Graph
from ...graph.serialized import serialized
from ...graph.stage import placeholder, placeholder_like, shape_of
from ...partition.joint import Sizes
from ...partition.split import split
from ...runtime.calls.native_call import NativeCall
from ...transforms.batch import batch_of_tensors

Spec = tuple[tuple[int, ...], str]  #: shape and dtype
Tensors = tuple[list[Tensor], list[Tensor]]  #: placeholders, and what is computed from them


class Program:
    """Tensors computed from others; a parameter of the primitive.

    Attributes
    ----------
    specs, results : tuple of Spec
        The shapes and dtypes of the inputs and of the outputs.
    """

    def __init__(
        self, specs: Sequence[Spec], results: Sequence[Spec], make: Callable[[], Tensors]
    ) -> None:
        self.specs, self.results = tuple(specs), tuple(results)
        self._make = make  # a program that is only transposed needs no tensors
        self._tensors: Tensors | None = None
        self._derived: dict[Hashable, Any] = {}
        self._name: str | None = None
        self._call: NativeCall | None = None
        self._lock = threading.RLock()

    @staticmethod
    def of(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Program:
        """The program of given tensors."""
        both = list(inputs), plain_outputs(outputs)
        return Program(_specs(inputs), _specs(outputs), lambda: both)

    @property
    def tensors(self) -> Tensors:
        """The placeholders, and the tensors computed from them."""
        with self._lock:
            if self._tensors is None:
                self._tensors = self._make()
        return self._tensors

    @property
    def name(self) -> str:
        """The name by which XLA finds the code; equal programs have equal names."""
        if self._name is None:
            text = serialized([list(part) for part in self.tensors])
            known = uuid.uuid4().hex if text is None else hashlib.sha256(text.encode()).hexdigest()
            self._name = f"tvm_autodiff_{known[:32]}"
        return self._name

    @property
    def call(self) -> NativeCall:
        """The compiled program."""
        with self._lock:
            if self._call is None:
                self._call = build(*self.tensors)._native()
        return self._call

    def __repr__(self) -> str:
        return f"{_text(self.specs)} -> {_text(self.results)}"

    def _kept(self, key: Hashable, make: Callable[[], Any]) -> Any:
        with self._lock:
            if key not in self._derived:
                self._derived[key] = make()
        return self._derived[key]

    def pushforward(self, moving: tuple[bool, ...]) -> Program:
        """The program from inputs, and tangents of those in `moving`, to tangents of floating point
        outputs.
        """

        def make() -> Program:
            inputs, outputs = self.tensors
            tangents = [
                placeholder_like(x, f"{x.op.name}_dot") if moves else None
                for x, moves in zip(inputs, moving, strict=True)
            ]
            found = present(pushed(outputs, inputs, tangents))
            return Program.of([*inputs, *present(tangents)], found)

        return self._kept(("pushforward", moving), make)

    def transposed(self, unknown: tuple[bool, ...], given: tuple[bool, ...]) -> Program:
        """The program from known inputs and cotangents of given outputs to cotangents of unknown
        inputs.

        The program must be linear in the unknown inputs.

        Raises
        ------
        NotDifferentiableError
            If it is not linear.
        """

        def make() -> Program:
            specs = [s for s, u in zip(self.specs, unknown, strict=True) if not u]
            heads = [s for s, g in zip(self.results, given, strict=True) if g]
            results = [s for s, u in zip(self.specs, unknown, strict=True) if u]
            return Program([*specs, *heads], results, tensors)

        def tensors() -> Tensors:
            inputs, outputs = self.tensors
            heads = _cotangents(outputs, given)
            wanted = [x for x, u in zip(inputs, unknown, strict=True) if u]
            found = present(pulled(outputs, wanted, heads))
            read = Graph(found)
            if any(read.contains(x) for x in wanted):
                names = ", ".join(x.op.name for x in wanted)
                raise NotDifferentiableError(f"the program is not linear in {names}")
            known = [x for x, u in zip(inputs, unknown, strict=True) if not u]
            return [*known, *present(heads)], plain_outputs(found)

        return self._kept(("transposed", unknown, given), make)

    def split(self, moving: tuple[bool, ...], reverse: bool) -> Split:
        """The program with residuals among its outputs, and the derivative from these."""
        return self._kept(("split", moving, reverse), lambda: _split(self, moving, reverse))

    def batched(self, mapped: tuple[bool, ...], size: int) -> Program:
        """The program for a batch, with the batch axis in front of mapped inputs and of all
        outputs.
        """

        def make() -> Program:
            inputs, outputs = self.tensors
            given = [
                placeholder((size, *shape_of(x)), dtype_of(x), x.op.name) if m else x
                for x, m in zip(inputs, mapped, strict=True)
            ]
            pairs = [(x, batch) for x, batch, m in zip(inputs, given, mapped, strict=True) if m]
            return Program.of(given, batch_of_tensors(outputs, pairs, size))

        return self._kept(("batched", mapped, size), make)


class Split:
    """A program in two parts.

    Attributes
    ----------
    first : Program
        From the inputs to the outputs, followed by residuals.
    passed : tuple of int
        The inputs that are residuals; they come first.
    kept : tuple of int
        The outputs of `first` that are the other residuals.
    linear : Program
        From residuals, and tangents of the inputs that have one, to the tangents of the floating
        point outputs.
    """

    def __init__(
        self, first: Program, passed: tuple[int, ...], kept: tuple[int, ...], linear: Program
    ) -> None:
        self.first, self.passed, self.kept, self.linear = first, passed, kept, linear


def _split(program: Program, moving: tuple[bool, ...], reverse: bool) -> Split:
    """Choose residuals for the requested mode.

    For reverse mode, the linear program is the transpose of the pullback, and usually only its
    transpose is computed.
    """
    inputs, outputs = program.tensors
    wanted = [x for x, moves in zip(inputs, moving, strict=True) if moves]
    tangents = [placeholder_like(x, f"{x.op.name}_dot") for x in wanted]
    heads = _cotangents(outputs, tuple(map(is_float, outputs)))
    if reverse:
        later, derived = present(heads), present(pulled(outputs, wanted, heads))
    else:
        aligned = iter(tangents)
        directions = [next(aligned) if moves else None for moves in moving]
        later, derived = tangents, present(pushed(outputs, inputs, directions))
    passes, _ = split(inputs, outputs, derived, later, Sizes({}))
    second = Program.of(passes.backward.inputs, passes.backward.outputs)
    count = len(passes.passed) + len(passes.kept)
    if reverse:
        unknown = (*[False] * count, *[True] * len(later))
        second = second.transposed(unknown, tuple([True] * len(derived)))
        second._derived[
            "transposed", (*[False] * count, *[True] * len(wanted)), (*[True] * len(later),)
        ] = Program.of(passes.backward.inputs, passes.backward.outputs)
    first = Program.of(passes.forward.inputs, passes.forward.outputs)
    return Split(first, passes.passed, passes.kept, second)


def _cotangents(outputs: Sequence[Tensor], given: Sequence[bool]) -> list[Tensor | None]:
    return [
        placeholder_like(y, f"{y.op.name}_bar") if g else None
        for y, g in zip(outputs, given, strict=True)
    ]


def _specs(tensors: Sequence[Tensor]) -> list[Spec]:
    return [(tuple(int(dim) for dim in shape_of(t)), dtype_of(t)) for t in tensors]


def present(values: Sequence[Any]) -> list[Any]:
    """Those that are not None."""
    return [value for value in values if value is not None]


def _text(specs: Sequence[Spec]) -> str:
    return ", ".join(f"{dtype}[{', '.join(map(str, shape))}]" for shape, dtype in specs)
