"""`function`: turns a Python function of te tensors into a function of PyTorch tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch._dynamo import nonstrict_trace
from torch.utils import _pytree

from ...containers import Form, flattened, skeleton
from ...errors import InvalidArgumentError
from ...expr.nodes import is_tensor
from ...functions.array_function import KEPT_PROGRAMS, ArrayFunction, plain_outputs
from ...functions.jit import Dynamic, jit
from ...functions.signature import Options, Signature, signature_of
from ...functions.tracing import Trace, described
from ...keywords import checked_keywords
from ...partition.programs import Program
from .arguments import as_tensors, look_for, promoted, quick_key
from .autograd import RecordedOnCpu, call_of
from .calls import Call, call_for, plain
from .derived import BUDGETS
from .operator import Operator
from .plain_calls import is_plain_call

#: leaves whose types tell at once that they are no containers
_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))

@checked_keywords
def function(
    te_function: Callable[..., Any], *, dynamic: Dynamic | None = None, save: str | int = "auto"
) -> TorchFunction:
    """Turn a Python function of te tensors into a PyTorch operator.

    Parameters
    ----------
    te_function : callable
        A function from te tensors to te tensors, in nested tuples, lists, dictionaries and
        dataclasses. It is called with placeholders, once for each signature of shapes and dtypes.
    dynamic : mapping from str to sequence of int, optional
        Axes with symbolic size, by argument name, as in `jit`. One compilation then serves all
        sizes.
    save : {"auto", "all", "recompute"} or int
        What the forward pass keeps for the backward pass: the choice of least estimated time,
        everything that saves work, only inputs, or at most a number of bytes.

    Returns
    -------
    TorchFunction
        A function from tensors to tensors, in the same containers. It can be differentiated any
        number of times in both modes, and works under ``torch.func`` and
        ``torch.compile(fullgraph=True)``.

    Raises
    ------
    InvalidArgumentError
        If an option has the wrong form. In the call: if an argument is not a tensor, or a result is
        not a te tensor.
    CallError
        In the call: if tensors are on different devices.

    Examples
    --------
    >>> import pytest
    >>> torch = pytest.importorskip("torch")
    >>> from tvm import topi
    >>> from tvm_autodiff.interop.torch import function
    >>> energy = function(lambda x: topi.sum(topi.exp(x) * x))
    >>> x = torch.zeros(2, requires_grad=True)
    >>> [slope] = torch.autograd.grad(energy(x), x, create_graph=True)
    >>> slope.detach(), torch.autograd.grad(slope.sum(), x)
    (tensor([1., 1.]), (tensor([2., 2.]),))
    """
    return TorchFunction(te_function, jit(te_function, dynamic=dynamic)._options, _checked(save))


def _checked(save: Any) -> str | int:
    if isinstance(save, str) and save in BUDGETS:
        return save
    if isinstance(save, int) and not isinstance(save, bool) and save >= 0:
        return save
    raise InvalidArgumentError(
        f"save is {save!r}: use one of {', '.join(map(repr, BUDGETS))}, or a number of bytes"
    )


@dataclass(frozen=True)
class TorchProgram:
    """A function of leaves, for one signature.

    Attributes
    ----------
    operator : Operator
        The program.
    form : Form
        The form of the results.
    numbers : tuple of (str or None)
        The dtypes of number leaves, and None for tensors.
    budget : int or None
        The maximum number of bytes that are kept for a backward pass.
    """

    operator: Operator
    form: Form
    numbers: tuple[str | None, ...]
    budget: int | None

    def __call__(self, leaves: Sequence[Any]) -> Any:
        tensors = as_tensors(leaves, self.numbers) if any(self.numbers) else leaves
        if torch.compiler.is_exporting():
            # a graph must contain the operator itself, whatever requires a gradient now
            results = self.operator.op(*tensors)
            results = results if isinstance(results, (tuple, list)) else (results,)
        else:
            results = call_of(self.operator, tensors, self.budget)
        return results[0] if self.form.kind == "leaf" else self.form.filled(results)


@dataclass(frozen=True)
class QuickCall:
    """A program for tensors of one kind, with what needs to be looked at only once.

    Attributes
    ----------
    program : TorchProgram
        The program.
    wrt : tuple of int
        The leaves that require a gradient.
    """

    program: TorchProgram
    wrt: tuple[int, ...]

    def __call__(self, leaves: Sequence[Any]) -> Any:
        if not is_plain_call(leaves):
            return self.program(leaves)
        if self.wrt and torch.is_grad_enabled():
            call = self._recorded
            results = RecordedOnCpu.apply(call, *leaves)
            if len(results) > call.outputs:
                results = results[: call.outputs]
        else:
            results = self._unrecorded.execute_on_cpu(leaves)
        form = self.program.form
        return results[0] if form.kind == "leaf" else form.filled(results)

    @cached_property
    def _recorded(self) -> Call:
        return call_for(self.program.operator, self.wrt, self.program.budget)

    @cached_property
    def _unrecorded(self) -> Call:
        return plain(self.program.operator)


class TorchFunction(ArrayFunction):
    """A function of PyTorch tensors made from one of te tensors; see `function`.

    Attributes
    ----------
    function : callable
        The function of te tensors.
    save : str or int
        What is kept for backward passes.

    Examples
    --------
    >>> import pytest
    >>> torch = pytest.importorskip("torch")
    >>> from tvm import topi
    >>> from tvm_autodiff.interop.torch import function
    >>> square = function(lambda x: topi.multiply(x, x), save="recompute")
    >>> type(square).__name__, square.save
    ('TorchFunction', 'recompute')
    """

    def __init__(
        self, function: Callable[..., Any], options: Options, save: str | int = "auto"
    ) -> None:
        super().__init__(function, options)
        self.save = save
        self._forms: dict[Hashable, Form] = {}

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return _in_graph(self, args, kwargs)
        return self._run(args, kwargs)

    def _run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        leaves: list[Any] = []
        if not kwargs and _TENSORS.issuperset(map(type, args)):  # the most frequent form
            key = _positional(len(args))
            leaves += args
        else:
            key = skeleton((args, kwargs), leaves)
        if torch._C._is_any_autocast_enabled():
            leaves = promoted(leaves)
        try:
            quick = self._quick.get((key, *quick_key(leaves)))
        except (AttributeError, TypeError):  # te tensors, numbers, sizes that are symbols
            quick = None
        if quick is not None:
            return quick(leaves)
        if any(map(is_tensor, leaves)):
            self._refuse_arrays(leaves)
            return self.function(*args, **kwargs)
        args, kwargs = flattened((tuple(args), dict(kwargs)))[1].filled(leaves)
        return self._program(args, kwargs, key, leaves)(leaves)

    def _program(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], key: Hashable, leaves: Sequence[Any]
    ) -> Any:
        look = look_for(dict(self._options.dynamic))
        signature = signature_of(self, self._options, args, kwargs, look)
        kinds = tuple(type(leaf) if type(leaf) in (bool, int, float) else None for leaf in leaves)
        whole = (key, kinds, signature.key)
        with self._lock:
            if signature.sizes > 1:
                self._check_sizes(signature)
            program = self._programs.get(whole)
            if program is None:
                program = self._programs[whole] = self._made(signature, key, kinds)
                if len(self._programs) > KEPT_PROGRAMS:
                    self._programs.popitem(last=False)
                    self._quick.clear()
            if len(self._quick) > 4 * KEPT_PROGRAMS:
                self._quick.clear()
            if not any(isinstance(d, torch.SymInt) for t in leaves for d in _shape_of(t)):
                quick = (key, *quick_key(leaves))
                self._quick[quick] = _quick(program, leaves)
        return program

    def _made(self, signature: Signature, key: Hashable, kinds: Sequence[Any]) -> TorchProgram:
        program: Any = self._compiled(signature)
        form = self._forms.setdefault(key, program.form)
        if not form.like(program.form):
            raise InvalidArgumentError(
                f"{described(self.function)} returned {form} at first, and {program.form} for "
                f"{signature}: results for arguments in the same containers must have the same form"
            )
        dtypes = [
            None if kind is None else leaf.dtype
            for kind, leaf in zip(kinds, signature.leaves, strict=True)
        ]
        return TorchProgram(program.operator, program.form, tuple(dtypes), program.budget)

    def _built(self, trace: Trace, signature: Signature) -> Any:
        program = Program(trace.inputs, plain_outputs(trace.outputs))
        sizes = {
            f"n{number}": leaf.shape[axis]
            for leaf, symbols in zip(signature.leaves, signature.symbols, strict=True)
            for axis, number in symbols.items()
        }
        name = getattr(self.function, "__name__", type(self.function).__name__)
        operator = Operator(name, lambda: program, sizes)
        budget = self.save if isinstance(self.save, int) else BUDGETS[self.save]
        return TorchProgram(operator, trace.form, (None,) * len(trace.inputs), budget)

    def __eq__(self, other: object) -> bool:
        return self is other  # torch.compile requires one that is not a default

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: Any) -> TorchFunction:
        return self

    def __reduce__(self) -> Any:
        name = getattr(self.function, "__qualname__", "")
        module = sys.modules.get(getattr(self.function, "__module__", ""))
        if getattr(module, name, None) is self:
            return name  # a decorator replaced its function by it
        return type(self), (self.function, self._options, self.save)

    def __repr__(self) -> str:
        return f"<TorchFunction {described(self.function)}>"


@cache
def _positional(count: int) -> Hashable:
    """The form of a call with leaves in order."""
    return skeleton(((0,) * count, {}), [])


def _shape_of(value: Any) -> Sequence[Any]:
    return value.shape if isinstance(value, torch.Tensor) else ()


def _quick(program: Any, leaves: Sequence[Any]) -> Any:
    """What to remember for leaves like these."""
    if any(program.numbers):
        return program
    return QuickCall(program, tuple([n for n, leaf in enumerate(leaves) if leaf.requires_grad]))


_pytree.register_constant(TorchFunction)


@nonstrict_trace
def _in_graph(made: TorchFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that torch.compile records as one operator instead of tracing its Python code."""
    return made._run(args, kwargs)
