"""One program as one PyTorch operator: kernels for CPU and CUDA, and shape inference.

The name contains a digest of the program, so a changed program is a different operator. PyTorch
caches compiled graphs by operator names.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from ...codegen.targets import Target
from ...compile import build
from ...functions.tracing import identifier
from ...partition.programs import Program
from ...runtime.compiled import CompiledFunction
from ...runtime.files.build_key import build_key
from . import derived
from .openmp import launch
from .shapes import shapes_of

NAMESPACE = "tvm_autodiff"

#: digits of the digest in a name: 64 bits
_DIGITS = 16

T = TypeVar("T")


class Operator:
    """A program, the programs derived from it, and its operator in ``torch.ops.tvm_autodiff``.

    Nothing is derived, registered or compiled before it is needed.

    Parameters
    ----------
    name : str
        The start of the operator's name.
    make : callable
        Returns the program.
    sizes : mapping
        Values of symbolic sizes for the choice of residuals.
    """

    def __init__(
        self, name: str, make: Callable[[], Program], sizes: Mapping[str, int] | None = None
    ) -> None:
        self.name = name
        self.sizes = dict(sizes or {})
        self._make = make
        self._kept: dict[Hashable, Any] = {}
        self._lock = threading.RLock()

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached result of the first call of `make`."""
        if key not in self._kept:
            with self._lock:
                if key not in self._kept:
                    self._kept[key] = make()
        return self._kept[key]

    @property
    def program(self) -> Program:
        """The program."""
        return self.once("program", self._make)

    @property
    def op(self) -> Any:
        """The registered operator, from tensors to a tuple of tensors."""
        return self.registered[0]

    @property
    def kernels(self) -> Kernels:
        """What the registered operator calls."""
        return self.registered[1]

    @property
    def registered(self) -> tuple[Any, Kernels]:
        """The operator in PyTorch's table, and its compiled functions."""
        kept = self._kept.get("registered")
        return self.once("registered", lambda: OPERATORS.registered(self)) if kept is None else kept

    @property
    def count(self) -> int:
        """The number of inputs."""
        return len(self.program.inputs)

    def pullback(self, wrt: tuple[int, ...], heads: tuple[int, ...]) -> DerivedOperator:
        """See `derived.pullback`."""
        return self._derived(
            "vjp", (wrt, heads), lambda: derived.pullback(self.program, wrt, heads)
        )

    def pushforward(self, moving: tuple[int, ...]) -> DerivedOperator:
        """See `derived.pushforward`."""
        return self._derived("jvp", moving, lambda: derived.pushforward(self.program, moving))

    def batched(self, members: tuple[bool, ...], size: int) -> Operator:
        """See `derived.batched`."""

        def make() -> Operator:
            return Operator(
                f"{self.name}_vmap",
                lambda: derived.batched(self.program, members, size),
                self.sizes,
            )

        return self.once(("vmap", members, size), make)

    def selected(self, numbers: tuple[int, ...]) -> Operator:
        """See `derived.selected`."""
        if len(numbers) == len(self.program.outputs):
            return self
        make = lambda: derived.selected(self.program, numbers)  # noqa: E731
        return self.once(("selected", numbers), lambda: Operator(self.name, make, self.sizes))

    def _derived(
        self, kind: str, key: Hashable, make: Callable[[], derived.Derived]
    ) -> DerivedOperator:
        def made() -> DerivedOperator:
            program, reads = make()
            return Operator(f"{self.name}_{kind}", lambda: program, self.sizes), reads

        return self.once((kind, key), made)


#: an operator, and which of its possible arguments it reads
DerivedOperator = tuple[Operator, tuple[int, ...]]


class Kernels:
    """The compiled functions of a program, one for each kind of device.

    Each is built on its first call.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._functions: dict[str, CompiledFunction] = {}
        self._lock = threading.Lock()

    def on_cpu(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results for tensors on the host."""
        function = self._functions.get("cpu") or self._built("cpu", None)
        # a comprehension costs as much as the checks
        given = [t if t.is_contiguous() else t.contiguous() for t in tensors]
        return tuple(function(*given))

    def on_cuda(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results for tensors on one GPU, and scalars on the host."""
        function = self._functions.get("cuda") or self._built("cuda", "cuda")
        device = next(tensor.device for tensor in tensors if tensor.device.type == "cuda")
        return tuple(function(*[tensor.to(device).contiguous() for tensor in tensors]))

    def _built(self, kind: str, target: Target | str | None) -> CompiledFunction:
        with self._lock:
            if kind not in self._functions:
                program = self._program
                function = build(program.inputs, program.outputs, target)
                pool = launch() if kind == "cpu" else None
                if pool is not None:
                    function._divide_by(pool[0])
                self._functions[kind] = function
            return self._functions[kind]


class Operators:
    """The operators of the namespace, one table for the process like PyTorch's own."""

    def __init__(self) -> None:
        self._library = torch.library.Library(NAMESPACE, "FRAGMENT")
        self._known: dict[str, tuple[Any, Kernels]] = {}
        self._lock = threading.RLock()
        self._nameless = itertools.count()

    def registered(self, operator: Operator) -> tuple[Any, Kernels]:
        """The PyTorch operator for a program and its kernels, shared by equal programs."""
        program = operator.program
        name = f"{identifier(operator.name) or 'te'}_{self._digest(program)}"
        with self._lock:
            if name not in self._known:
                self._known[name] = self._register(name, operator)
            return self._known[name]

    def _digest(self, program: Program) -> str:
        key = build_key([program.inputs, program.outputs], {})
        # a program that TVM cannot serialise is different each time
        return f"unwritten{next(self._nameless)}" if key is None else key[:_DIGITS]

    def _register(self, name: str, operator: Operator) -> tuple[Any, Kernels]:
        from .autograd import recorded  # it calls operators

        program = operator.program
        inputs = ", ".join(f"Tensor x{number}" for number in range(len(program.inputs)))
        outputs = ", ".join(["Tensor"] * len(program.outputs))
        single = len(program.outputs) == 1
        library = self._library
        library.define(f"{name}({inputs}) -> {outputs if single else f'({outputs})'}")
        kernels = Kernels(program)
        library.impl(name, _spread(kernels.on_cpu, single), "CPU")
        library.impl(name, _spread(kernels.on_cuda, single), "CUDA")
        library.impl(name, lambda *tensors: recorded(operator, tensors), "Autograd")
        full = f"{NAMESPACE}::{name}"
        torch.library.register_fake(full, shapes_of(program), lib=library)
        return getattr(getattr(torch.ops, NAMESPACE), name).default, kernels


def _spread(run: Callable[..., Any], single: bool) -> Callable[..., Any]:
    """A function of a sequence as one of several arguments, with a single result in no tuple."""
    return (lambda *tensors: run(tensors)[0]) if single else (lambda *tensors: run(tensors))


OPERATORS = Operators()
