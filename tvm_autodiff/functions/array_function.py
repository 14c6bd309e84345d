"""A Python function of te tensors as a function of arrays, compiled for each signature."""

from __future__ import annotations

import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import update_wrapper
from types import MethodType
from typing import Any

from ..compile import build
from ..containers import Form, skeleton
from ..errors import AutodiffError, CallError, InvalidArgumentError
from ..expr.nodes import Tensor, dtype_of, is_tensor
from ..graph.graph import Graph
from ..graph.out_of_bounds import refuse_reads_out_of_bounds
from ..graph.stage import is_placeholder, shape_of
from ..partition.programs import distinct
from ..runtime.arrays import kind_of
from ..runtime.compiled import CompiledFunction
from ..schedule.rewrites.normal_form import copy_of
from .leaves import contiguous, quick_key
from .signature import DEFAULT, Options, Signature, signature_of
from .tracing import Trace, described, traced

#: the maximum number of programs that a function keeps, one for each signature; the oldest are
#: dropped first
KEPT_PROGRAMS = 64

#: the compiled form of a signature: from the leaves of the arguments to the result
Runnable = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Program:
    """A compiled function of leaves.

    Attributes
    ----------
    function : CompiledFunction
        A function from the leaves of the arguments to the outputs that are not written in place.
    form : Form
        The form of all outputs.
    in_place : tuple of (int, int)
        Pairs of an output and the argument leaf that it overwrites.
    """

    function: CompiledFunction
    form: Form
    in_place: tuple[tuple[int, int], ...]

    def __call__(self, leaves: Sequence[Any]) -> Any:
        try:
            results = self.function(*leaves)
        except CallError:
            leaves, results = called_again(self.function, leaves)
        if self.in_place:
            for output, leaf in self.in_place:
                results.insert(output, leaves[leaf])
        form = self.form
        return results[0] if form.kind == "leaf" else form.filled(results)


def called_again(
    function: CompiledFunction, leaves: Sequence[Any]
) -> tuple[Sequence[Any], list[Any]]:
    """The arguments and results of a rejected call, repeated with contiguous copies if that is
    sufficient.

    The rejected call wrote nothing.
    """
    copies = [contiguous(leaf) for leaf in leaves]
    if all(copy is leaf for copy, leaf in zip(copies, leaves, strict=True)):
        return leaves, function(*leaves)
    return copies, function(*copies)


class ArrayFunction:
    """A Python function of te tensors that takes arrays.

    A call with arrays (numpy, PyTorch, JAX, CuPy, TVM, anything with DLPack) traces the function
    for their shapes and dtypes, compiles it, and runs it. Later calls with the same shapes and
    dtypes only run it. Results are arrays of the framework of the first argument. A call with te
    tensors, while another function is traced, returns te tensors. Variables of enclosing scopes are
    read during tracing, and must not change afterwards. Make instances with `jit`, `grad` and the
    other transforms.

    Attributes
    ----------
    function : callable
        The function of te tensors.

    Examples
    --------
    >>> from tvm import te, topi
    >>> from tvm_autodiff import grad, show
    >>> slope = grad(lambda x: topi.sum(x * x * x))
    >>> type(slope).__name__
    'ArrayFunction'
    >>> print(show(slope(te.placeholder((4,), name="x"))).splitlines()[0])
    inputs  x: float32[4]
    """

    def __init__(self, function: Callable[..., Any], options: Options = DEFAULT) -> None:
        if not callable(function) or is_tensor(function):
            raise InvalidArgumentError(
                f"expected a function of tensors, got {type(function).__name__}"
            )
        self.function: Callable[..., Any] = (
            function.function if isinstance(function, ArrayFunction) else function
        )
        self._options = options
        self._programs: OrderedDict[Hashable, Runnable] = OrderedDict()
        self._quick: dict[Hashable, Runnable] = {}
        self._lock = threading.RLock()
        update_wrapper(self, function, updated=())

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        if not self._options.static:
            key: Hashable = skeleton((args, kwargs) if kwargs else args, leaves)
        else:
            key = self._static_key(args, kwargs, leaves)
        try:
            program = self._quick.get((key, *quick_key(leaves)))
        except (AttributeError, TypeError):  # te tensors, or what has no shape
            program = None
        if program is None:
            if any(map(is_tensor, leaves)):
                self._refuse_arrays(leaves)
                return self.function(*args, **kwargs)
            program = self._program(args, kwargs, key, leaves)
        return program(leaves)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def _refuse_arrays(self, leaves: Sequence[Any]) -> None:
        for leaf in leaves:
            if not is_tensor(leaf) and kind_of(leaf) is not None:
                raise InvalidArgumentError(
                    f"{described(self.function)} is called with te tensors and an array, "
                    f"{type(leaf).__name__}: a traced function gets all arrays as arguments; make "
                    "it an argument of the outermost function"
                )

    def _static_key(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: list[Any]
    ) -> Hashable:
        static = self._options.static
        parts: list[Hashable] = []
        for number, value in enumerate(args):
            if number in static:
                try:
                    hash(value)
                except TypeError as error:
                    raise InvalidArgumentError(
                        f"argument {number} of {described(self.function)} is static, and "
                        f"{type(value).__name__} is not hashable: pass a hashable value"
                    ) from error
                parts.append((type(value), value))
            else:
                parts.append(skeleton(value, leaves))
        parts.append(skeleton(dict(kwargs), leaves))
        return tuple(parts)

    def _program(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], key: Hashable, leaves: Sequence[Any]
    ) -> Runnable:
        signature = signature_of(self, self._options, args, kwargs)
        whole = (key, signature.key)
        with self._lock:
            program = self._programs.get(whole)
            if signature.sizes > 1:
                self._check_sizes(signature)
            if program is None:
                program = self._programs[whole] = self._compiled(signature)
                if len(self._programs) > KEPT_PROGRAMS:
                    self._programs.popitem(last=False)
                    self._quick.clear()
            if len(self._quick) > 4 * KEPT_PROGRAMS:
                self._quick.clear()
            quick = (key, *quick_key(leaves))
            self._quick[quick] = program
        return program

    def _check_sizes(self, signature: Signature) -> None:
        """Raise an error if sizes are inconsistent, which symbolic sizes cannot show."""
        fixed = replace(signature, symbols=[{} for _ in signature.symbols])
        refuse_reads_out_of_bounds(Graph(self._traced(fixed).outputs).ops)

    def _traced(self, signature: Signature) -> Trace:
        function = _with_static(self.function, signature.static)
        return traced(function, signature.placeholders(), signature.form)

    def _compiled(self, signature: Signature) -> Runnable:
        try:
            return self._built(self._traced(signature), signature)
        except AutodiffError as error:
            if error.args and isinstance(error.args[0], str):
                where = f"while compiling {described(self.function)} for {signature}"
                error.args = (f"{error.args[0]}\n  {where}", *error.args[1:])
            raise

    def _built(self, trace: Trace, signature: Signature) -> Runnable:
        outputs = plain_outputs(trace.outputs)
        in_place = self._in_place(trace, signature)
        updates = [(trace.inputs[leaf], outputs[output]) for output, leaf in in_place]
        written = {output for output, _ in in_place}
        rest = [tensor for number, tensor in enumerate(outputs) if number not in written]
        function = build(
            trace.inputs, rest, updates=updates or None, **self._build_options(signature)
        )
        return Program(function, trace.form, tuple(in_place))

    def _build_options(self, signature: Signature) -> dict[str, Any]:
        options = dict(self._options.build)
        if any(leaf.gpu is not None for leaf in signature.leaves):
            options.setdefault("target", "cuda")
        return options

    def _in_place(self, trace: Trace, signature: Signature) -> list[tuple[int, int]]:
        """The outputs that overwrite donated arguments."""
        donated = self._options.donated
        free = [
            number
            for number, owner in enumerate(_owners(signature.form.parts[0]))
            if owner in donated and signature.leaves[number].writable
        ]
        pairs = []
        for output, tensor in enumerate(trace.outputs):
            kind = dtype_of(tensor), [str(dim) for dim in shape_of(tensor)]
            for leaf in free:
                given = trace.inputs[leaf]
                if kind == (dtype_of(given), [str(dim) for dim in shape_of(given)]):
                    free.remove(leaf)
                    pairs.append((output, leaf))
                    break
        return pairs

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.function, self._options)  # what was compiled stays here

    def __repr__(self) -> str:
        return f"<ArrayFunction {described(self.function)}>"


def _owners(form: Form) -> list[int]:
    """The number of the positional argument of each leaf."""
    return [number for number, part in enumerate(form.parts) for _ in range(part.count)]


def _with_static(function: Callable[..., Any], static: Mapping[int, Any]) -> Callable[..., Any]:
    """The function with its static arguments inserted where None is given."""
    if not static:
        return function

    def filled(*args: Any, **kwargs: Any) -> Any:
        return function(*(static.get(n, value) for n, value in enumerate(args)), **kwargs)

    return update_wrapper(filled, function)


def plain_outputs(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors that a program can return: no inputs, and each tensor once."""
    return distinct([copy_of(t) if is_placeholder(t.op) else t for t in tensors])


class _Derived(dict[Hashable, ArrayFunction]):
    """Functions derived from a function, stored with it; copies of it start without them."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Derived, ()


def derived(
    function: Callable[..., Any],
    key: Hashable,
    made: Callable[..., Any],
    kind: type[ArrayFunction] = ArrayFunction,
    *,
    own_arguments: bool = False,
) -> ArrayFunction:
    """A function of te tensors derived from another one, with its compiled programs.

    Parameters
    ----------
    function : callable
        The original function, which stores the result if it can have attributes.
    key
        The key of the result among those of the same function.
    made : callable
        The function of te tensors.
    kind : type
        The class that compiles it.
    own_arguments : bool
        Whether its arguments differ from those of `function`.
    """
    if not callable(function) or is_tensor(function):
        raise InvalidArgumentError(f"expected a function, got {type(function).__name__}")
    attributes = getattr(function, "__dict__", None)
    kept: dict[Hashable, ArrayFunction] = _Derived()
    if attributes is not None and not inspect.ismethod(function):
        kept = attributes.setdefault("_tvm_autodiff_derived", kept)
    if key not in kept:
        if own_arguments:
            made.__signature__ = inspect.signature(made)  # type: ignore[attr-defined]
        kept[key] = kind(
            update_wrapper(made, function, updated=()), _options_of(function, own_arguments)
        )
    return kept[key]


def _options_of(function: Callable[..., Any], own_arguments: bool) -> Options:
    """The options for a function derived from another; it has other results and writes none in
    place.
    """
    if not isinstance(function, ArrayFunction):
        return DEFAULT
    options = replace(function._options, donated=())
    return replace(options, static=(), dynamic=()) if own_arguments else options
