"""`build_vjp`: compiles a forward function that also returns residuals, and a backward function
that takes them.

`choice` decides which tensors are residuals.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..compile import build
from ..errors import CallError, InvalidArgumentError, NotDifferentiableError
from ..expr.dtypes import integer_range
from ..expr.nodes import Tensor, dtype_of, is_float, is_tensor
from ..expr.rewrite import variables_of
from ..graph.stage import is_placeholder, placeholder, shape_of
from ..keywords import checked_keywords, suggestion
from ..runtime.compiled import CompiledFunction
from ..schedule.rewrites.normal_form import copy_of
from ..transforms.arguments import Manual, as_tensor, as_tensors, listed
from ..transforms.vjp import vjp
from .choice import Residuals
from .joint import Sizes
from .programs import Passes, Program, distinct
from .split import split


class ForwardPass:
    """A compiled program that also returns what its backward pass needs.

    Attributes
    ----------
    function : CompiledFunction
        A function from the inputs to the outputs, followed by the kept tensors that are not
        outputs.
    program : Program
        The te tensors that it was built from.
    """

    def __init__(
        self, function: CompiledFunction, passes: Passes, count: int, single: bool
    ) -> None:
        self.function = function
        self.program = passes.forward
        self._passed, self._kept = passes.passed, passes.kept
        self._count, self._single = count, single

    def __call__(self, /, *arrays: Any, **named: Any) -> tuple[Any, tuple[Any, ...]]:
        """Outputs and residuals.

        Parameters
        ----------
        *arrays, **named
            As in `CompiledFunction`.

        Returns
        -------
        outputs : array or list of arrays
            One array for a single tensor.
        residuals : tuple of arrays
            The first argument of `backward`. Inputs and outputs among them are not copied, so they
            must not change before the backward pass.

        Raises
        ------
        CallError
            As in `CompiledFunction`.
        """
        given = self.function.in_order(arrays, named) if named else arrays
        results = self.function(*given)
        residuals = (*(given[n] for n in self._passed), *(results[n] for n in self._kept))
        return (results[0] if self._single else results[: self._count]), residuals

    def __repr__(self) -> str:
        return f"<ForwardPass {self.function.signature}>"


class BackwardPass:
    """A compiled pullback, called with residuals and cotangents.

    Attributes
    ----------
    function : CompiledFunction
        A function from residuals, followed by cotangents of the floating point outputs, to the
        cotangents of the inputs.
    program : Program
        The te tensors that it was built from.
    """

    def __init__(
        self, function: CompiledFunction, passes: Passes, outputs: Sequence[Tensor], single: bool
    ) -> None:
        self.function = function
        self.program = passes.backward
        self._residuals = len(passes.passed) + len(passes.kept)
        self._outputs = [(tensor.op.name, is_float(tensor)) for tensor in outputs]
        self._single = single

    def __call__(self, residuals: Sequence[Any], *cotangents: Any) -> Any:
        """The cotangents of the inputs.

        Parameters
        ----------
        residuals : sequence of arrays
            The residuals that the forward pass returned.
        *cotangents
            One array for each output, of its shape and dtype, or None for an output that is not
            floating point.

        Raises
        ------
        CallError
            If the number of residuals or cotangents is wrong, or an array does not fit.
        """
        if not isinstance(residuals, Sequence):
            raise CallError(
                f"residuals must be what the forward pass returned with its outputs, "
                f"got {type(residuals).__name__}"
            )
        given = list(residuals)
        if len(given) != self._residuals:
            names = ", ".join(t.op.name for t in self.program.inputs[: self._residuals]) or "none"
            raise CallError(
                f"residuals: the forward pass returns {self._residuals} arrays ({names}), but got "
                f"{len(given)}: pass what it returned"
            )
        if len(cotangents) != len(self._outputs):
            names = ", ".join(name for name, _ in self._outputs)
            raise CallError(
                f"cotangents: there are {len(self._outputs)} outputs ({names}) and "
                f"{len(cotangents)} cotangents; pass one for each output"
            )
        for cotangent, (name, wanted) in zip(cotangents, self._outputs, strict=True):
            if (cotangent is None) == wanted:
                raise CallError(
                    f"the cotangent of {name} is None: pass zeros of its shape"
                    if wanted
                    else f"output {name} is not floating point: its cotangent must be None"
                )
            if wanted:
                given.append(cotangent)
        results = self.function(*given)
        return results[0] if self._single else results

    def __repr__(self) -> str:
        return f"<BackwardPass {self.function.signature}>"


class VjpFunctions:
    """The result of `build_vjp`; unpack it as ``forward, backward = build_vjp(...)``.

    Attributes
    ----------
    forward : ForwardPass
    backward : BackwardPass
    residuals : Residuals
        What is kept and what is recomputed, with bytes and iterations; prints as a table.
    """

    def __init__(self, forward: ForwardPass, backward: BackwardPass, residuals: Residuals) -> None:
        self.forward = forward
        self.backward = backward
        self.residuals = residuals

    def __iter__(self) -> Iterator[Any]:
        return iter((self.forward, self.backward))

    def explain(self) -> str:
        """A table of what is kept and what is recomputed.

        Examples
        --------
        >>> from tvm import te
        >>> from tvm_autodiff import build_vjp
        >>> A, W = (te.placeholder((8, 8), name=name) for name in "AW")
        >>> k = te.reduce_axis((0, 8), "k")
        >>> S = te.compute((8, 8), lambda i, j: te.sum(A[i, k] * W[k, j], axis=k), name="S")
        >>> Y = te.compute((8, 8), lambda i, j: te.tanh(S[i, j]), name="Y")
        >>> print(build_vjp([A, W], Y).explain())
        256  input       A  passed on
        256  input       W  passed on
        256  kept        Y  64 iterations saved
        256  bytes kept, 0 iterations again
        >>> print(build_vjp([A, W], Y, memory_budget=0).explain())
        256  input       A  passed on
        256  input       W  passed on
        256  recomputed  S  512 iterations
        256  recomputed  Y  64 iterations
          0  bytes kept, 576 iterations again, the least for 0 bytes
        """
        return str(self.residuals)

    def __repr__(self) -> str:
        return f"VjpFunctions({self.forward!r}, {self.backward!r})"


@checked_keywords
def build_vjp(
    inputs: Tensor | Sequence[Tensor],
    outputs: Tensor | Sequence[Tensor],
    wrt: Tensor | Sequence[Tensor] | None = None,
    *,
    memory_budget: int | None = None,
    sizes: Mapping[str, int] | None = None,
    target: Any = None,
    manual: Mapping[tuple[Tensor, Tensor], Manual] | None = None,
    override: Mapping[Tensor, Any] | None = None,
    num_threads: int | None = None,
    exact_math: bool = False,
    cache: bool | str | os.PathLike[str] = True,
    debug_nan: bool = False,
    debug_indices: bool = False,
) -> VjpFunctions:
    """Compile a program and its pullback into two functions.

    ``outputs, residuals = forward(*inputs)`` and ``adjoints = backward(residuals, *cotangents)``.
    Residuals are arrays on the device: inputs that the backward pass reads, and tensors that the
    forward pass keeps. By default, the kept tensors minimise the estimated time. With
    `memory_budget` they minimise the number of recomputed iterations. Both choices are minimum
    cuts, the second with branch and bound; `explain` shows the result. A `checkpoint` is never
    kept.

    Parameters
    ----------
    inputs : Tensor or sequence of Tensor
        The placeholders that the outputs read, in the order of the arguments.
    outputs : Tensor or sequence of Tensor
        The tensors that the forward pass computes. They may themselves be gradients.
    wrt : Tensor or sequence of Tensor, optional
        The tensors to differentiate with respect to. None means all floating point inputs.
    memory_budget : int, optional
        The maximum size of the kept tensors in bytes, including kept outputs but not inputs.
    sizes : mapping from str to int, optional
        Values of symbolic sizes for this choice. The default is 64, which is not allowed with a
        budget. The functions themselves take any sizes.
    target, num_threads, exact_math, cache, debug_nan, debug_indices
        As in `build`.
    manual, override
        As in `differentiate`.

    Returns
    -------
    VjpFunctions

    Raises
    ------
    InvalidArgumentError
        If an argument has the wrong form, or a budget is given and the size of a tensor is unknown.
    NotDifferentiableError
        As in `vjp`, and if no output is floating point.
    LoweringError, OutOfBoundsError
        As in `build`.

    References
    ----------
    H. He, "Min-cut optimal recomputation with AOTAutograd" (PyTorch developer mailing list, 2022),
    for the cut; the rule for fusion and the prices differ.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import te
    >>> x = te.placeholder((3,), name="x")
    >>> y = te.compute((3,), lambda i: te.exp(x[i]) * x[2 - i], name="y")
    >>> forward, backward = build_vjp(x, y, x)
    >>> value, residuals = forward(np.zeros(3, "float32"))
    >>> backward(residuals, np.ones(3, "float32"))
    array([1., 1., 1.], dtype=float32)
    """
    given = as_tensors(inputs, "inputs")
    results = [as_tensor(t, f"outputs[{n}]") for n, t in enumerate(listed(outputs, "outputs"))]
    if not results:
        raise InvalidArgumentError("outputs is empty: pass at least one tensor to compute")
    budget = _checked_budget(memory_budget)
    values = Sizes(_checked_sizes(sizes, given))
    asked = [t for t in given if is_float(t)] if wrt is None else as_tensors(wrt, "wrt")
    if not asked:
        raise InvalidArgumentError(
            "wrt: no input is floating point"
            if wrt is None
            else "wrt is empty: pass at least one tensor"
        )
    # a function returns neither inputs nor repeated outputs
    own = distinct([copy_of(t) if is_placeholder(t.op) else t for t in results])
    if not any(map(is_float, own)):
        raise NotDifferentiableError(
            f"outputs: {results[0].op.name} has dtype {dtype_of(results[0])}, and only floating "
            "point tensors have derivatives"
        )
    heads = [
        placeholder(shape_of(t), dtype_of(t), f"{t.op.name}_bar") if is_float(t) else None
        for t in own
    ]
    pulled = vjp(own, asked, heads, manual=manual, override=override)
    cotangents = [head for head in heads if head is not None]
    passes, residuals = split(given, own, list(pulled), cotangents, values, budget)

    def built(part: Program) -> CompiledFunction:
        return build(
            part.inputs,
            part.outputs,
            target,
            num_threads=num_threads,
            exact_math=exact_math,
            cache=cache,
            debug_nan=debug_nan,
            debug_indices=debug_indices,
        )

    return VjpFunctions(
        ForwardPass(built(passes.forward), passes, len(own), is_tensor(outputs)),
        BackwardPass(built(passes.backward), passes, results, wrt is not None and is_tensor(wrt)),
        residuals,
    )


def _checked_budget(value: Any) -> int | None:
    """The budget if it is a number of bytes; without one, everything is recomputed."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgumentError(
            f"memory_budget must be a number of bytes, got {value!r}; the minimum is 0, which "
            "keeps only inputs and recomputes everything else"
        )
    return value


def _checked_sizes(value: Any, inputs: Sequence[Tensor]) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"sizes must be a dictionary, got {type(value).__name__}")
    extents = [extent for tensor in inputs for extent in shape_of(tensor)]
    symbols = [v for e in extents if not isinstance(e, int) for v in variables_of(e)]
    dtypes = {str(var.name): dtype_of(var) for var in symbols}
    for name, size in value.items():
        if not isinstance(name, str) or isinstance(size, bool) or not isinstance(size, int):
            raise InvalidArgumentError(
                f"sizes maps names of symbolic sizes to numbers, got {name!r}: {size!r}"
            )
        if name not in dtypes:
            raise InvalidArgumentError(
                f"sizes: no input has a symbolic size {name!r}{suggestion(name, dtypes) or '.'} "
                f"There are {', '.join(dtypes) or 'none'}"
            )
        if not 0 <= size <= integer_range(dtypes[name])[1]:
            raise InvalidArgumentError(
                f"sizes: {name} is a size of dtype {dtypes[name]} and cannot be {size}"
            )
    return dict(value)
