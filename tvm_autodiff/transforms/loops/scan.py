"""`scan`: repeats a step, which is traced once, over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...containers import Form, flattened, paths
from ...errors import InvalidArgumentError
from ...expr.dtypes import integer_range
from ...expr.nodes import Tensor, const_value, dtype_of, is_expr, is_integer, is_tensor, tensor_key
from ...expr.rewrite import contains_load
from ...graph.graph import Graph, replace_tensors, tensors_read_by
from ...graph.kinds.checkpoints import Budget, Plan, Recursive
from ...graph.kinds.loop import Loop, copy_of, loop_stage, slice_of, step_of
from ...graph.out_of_bounds import refuse_reads_out_of_bounds
from ...graph.stage import Extent, is_compute, is_placeholder, placeholder_like, shape_of
from ...keywords import checked_keywords
from ..arguments import same_extents, shape_text
from .segments import segmented


@checked_keywords
def scan(
    step: Callable[[Any, Any], Any],
    init: Any,
    xs: Any = None,
    length: Any = None,
    *,
    reverse: bool = False,
    checkpoint: int | str | Recursive | Budget | None = None,
) -> tuple[Any, Any]:
    """Repeat a step over time with a carried state: ``carry, ys[t] = step(carry, xs[t])``.

    The step is traced once for any length. The loop is one stage, which is differentiated in both
    modes, batched and compiled like any other, and which may occur inside another step.

    Parameters
    ----------
    step : callable
        ``step(carry, x) -> (carry, y)``, called once, with placeholders. `x` is None without `xs`,
        and `y` may be None. The step may read tensors from outside; the loop can be differentiated
        with respect to them as well.
    init : tensor, or nested tuples, lists and dictionaries of tensors
        The carry before the first step. Carries of integers have no derivative.
    xs : tensor or containers of tensors, optional
        Sequences whose first axis is time. Each step gets one element.
    length : int or expression, optional
        The number of steps, which is required without `xs`. It may be symbolic or zero.
    reverse : bool
        Whether time runs backwards: the first step takes ``xs[length - 1]`` and returns
        ``ys[length - 1]``.
    checkpoint : int, Recursive, Budget or str, optional
        What reverse mode keeps from the forward pass:

        - None: everything that it reads from each step, except what is cheap to recompute.
        - a number k: the states before every k-th step. The steps in between are recomputed segment
          by segment, so that ``length / k + k`` steps are kept at a time, at the cost of one more
          forward pass.
        - ``Recursive(slots)``: this many states at a time, including the first one, placed so that
          as few steps as possible are recomputed: c slots and r runs of each step reach
          ``binomial(c + r, c)`` steps. ``"recursive"`` takes as many slots as limit the
          recomputation to one more forward pass, about the square root of ``2 * length``.
        - ``Budget(size)``, or a string such as ``"64MB"``: what None keeps if it fits, else as many
          states as fit beside the tensors of one step. The budget covers what reverse mode keeps
          and computes; `xs`, stacked results and their cotangents belong to the surrounding
          program.

        With a fixed number of states, each step back recomputes its step from the state before it,
        and nothing else is stored. Derivatives of the gradient keep about every ``sqrt(length)``-th
        state instead, without a budget. ``memory()`` of a compiled function and ``explain()`` of a
        gradient show the states, their bytes, and the recomputed steps.

    Returns
    -------
    carry
        The carry after the last step, in the form of `init`.
    ys
        The outputs of the steps, stacked along a first axis of time.

    Raises
    ------
    InvalidArgumentError
        If the step does not return a pair, or returns a carry whose form, shape or dtype differs
        from `init`; if `xs` differ in length; if there is neither `xs` nor `length`, or the length
        depends on data; or if `checkpoint` has another form. In reverse mode: if a budget is too
        small for one state, or is combined with symbolic sizes.
    OutOfBoundsError
        If a stage of the step certainly reads outside a tensor.

    Notes
    -----
    The number of steps cannot depend on data. Pass a bound as `length`, and keep the carry once the
    condition fails, as in the last example.

    References
    ----------
    `jax.lax.scan`, for the semantics. A. Griewank and A. Walther, "Algorithm 799: revolve" (ACM
    TOMS 26, 2000), for the placement of states.

    Examples
    --------
    An exponential moving average, and its gradient:

    >>> from tvm import te
    >>> from tvm_autodiff import differentiate, scan, show
    >>> x, start = te.placeholder((9,), name="x"), te.placeholder((), name="start")
    >>> def smooth(mean, x):
    ...     new = te.compute((), lambda: 0.9 * mean() + 0.1 * x(), name="new")
    ...     return new, new
    >>> last, means = scan(smooth, start, x)
    >>> print(show(means))
    inputs  start: float32, x: float32[9]
    (smooth.v0, smooth.v1) = loop_{t<9} start_1 = start, x_1 = x[t]  float32, float32[9]
        new = 0.9*start_1 + 0.1*x_1
        new_1 = new
        start_1 ← new, smooth.v1[t] ← new_1

    A gradient that keeps four states at a time:

    >>> from tvm_autodiff import Recursive
    >>> def logistic(n, _):
    ...     return te.compute((), lambda: 3.5 * n() * (1.0 - n()), name="n"), None
    >>> last, _ = scan(logistic, start, length=9, checkpoint=Recursive(slots=4))
    >>> print(differentiate(last, start).explain())
    backward loop dlogistic
      states kept at a time: 4 of 4 bytes each, 16 bytes
      recomputed steps: 4 beside 9 backward steps, the minimum for these states

    ``while x*x - a > 1e-6``: Newton's iteration for a root with at most 20 steps, which keeps its
    carry once the condition fails:

    >>> a = te.placeholder((), name="a")
    >>> def newton(x, _):
    ...     go = x() * x() - a() > 1e-6
    ...     return te.compute((), lambda: te.if_then_else(go, (x() + a() / x()) / 2, x())), None
    >>> first = te.compute((), lambda: a() + 1.0, name="first")
    >>> root, _ = scan(newton, first, length=20)
    """
    if not callable(step):
        raise InvalidArgumentError(f"step must be a function, got {type(step).__name__}")
    if not isinstance(reverse, bool):
        raise InvalidArgumentError(f"reverse must be True or False, got {reverse!r}")
    plan = _plan_of(checkpoint)
    first, form = _tensors(init, "init")
    sequences, form_xs = _tensors(xs, "xs")
    count = _length(sequences, paths(form_xs, "xs"), length)
    carries = [placeholder_like(tensor) for tensor in first]
    slices = [slice_of(tensor) for tensor in sequences]
    name = _name_of(step)
    found = step(form.filled(carries), form_xs.filled(slices))
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise InvalidArgumentError(
            f"step must return a pair (carry, y), got {_what(found)}; return (carry, None) if "
            "there is nothing to stack"
        )
    news = _checked_carry(found[0], first, form, name)
    ys, form_ys = _tensors(found[1], f"the y of {name}")
    if not news and not ys:
        return init, found[1]
    results = [_own(tensor, [*carries, *slices]) for tensor in (*news, *ys)]
    consts, results = _closed(results, [*carries, *slices])
    inside = [placeholder_like(tensor) for tensor in consts]
    results = replace_tensors(results, list(zip(consts, inside, strict=True)))
    made = step_of(carries, slices, inside, results[: len(news)], results[len(news) :])
    refuse_reads_out_of_bounds(Graph(made.outputs).ops)
    whole = Loop(made, tuple(first), tuple(sequences), tuple(consts), count, reverse)
    if isinstance(plan, int):
        outputs = segmented(name, whole, plan)
    else:
        outputs = loop_stage(name, replace(whole, plan=plan))
    return form.filled(outputs[: len(news)]), form_ys.filled(outputs[len(news) :])


def _plan_of(checkpoint: Any) -> int | Plan | None:
    """The plan for a value of `checkpoint`."""
    if checkpoint is None or isinstance(checkpoint, (Recursive, Budget)):
        return checkpoint
    if isinstance(checkpoint, int) and not isinstance(checkpoint, bool) and checkpoint >= 1:
        return checkpoint
    if checkpoint == "recursive":
        return Recursive()
    if isinstance(checkpoint, str) and checkpoint.endswith("B"):
        return Budget(checkpoint)
    raise InvalidArgumentError(
        f"checkpoint must be None, a number k of at least 1 (every k-th state is kept), "
        f"'recursive' or Recursive(slots=8), or a budget such as '64MB' or Budget(64_000_000); "
        f"got {checkpoint!r}"
    )


def _name_of(step: Any) -> str:
    name = getattr(step, "__name__", "")
    return name if name.isidentifier() else "scan"


def _what(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


def _tensors(value: Any, what: str) -> tuple[list[Tensor], Form]:
    """The leaves of an argument, which must all be tensors."""
    leaves, form = flattened(value)
    for leaf, path in zip(leaves, paths(form, what), strict=True):
        if not is_tensor(leaf):
            raise InvalidArgumentError(
                f"{path} must be a te.Tensor, got {type(leaf).__name__}; a constant is a stage: "
                "te.compute(shape, lambda *i: te.const(value, dtype))"
            )
    return leaves, form


def _length(xs: Sequence[Tensor], names: Sequence[str], length: Any) -> Extent:
    """The number of steps, on which all sequences and the argument must agree."""
    known: list[tuple[str, Extent]] = []
    if length is not None:
        whole = isinstance(length, int) and not isinstance(length, bool)
        data = is_tensor(length) or (is_expr(length) and contains_load(length))
        if not whole and (data or not (is_expr(length) and is_integer(length))):
            given = "what a tensor holds" if data else repr(length)
            raise InvalidArgumentError(
                f"length must be an int or an integer expression of sizes, got {given}; if the "
                "number of steps depends on data, pass a bound, and keep the carry once the "
                "condition fails: te.if_then_else(go, new, old)"
            )
        value = length if whole else const_value(length)
        if value is not None and value < 0:
            raise InvalidArgumentError(f"length is {value}: the number of steps cannot be negative")
        if value is not None and value > integer_range("int64")[1]:
            raise InvalidArgumentError(f"length is {value}, which no int64 holds")
        known.append(("length", length if value is None else int(value)))
    for tensor, name in zip(xs, names, strict=True):
        if not len(tensor.shape):
            raise InvalidArgumentError(
                f"{name}: tensor {tensor.op.name} has no axis, but the first axis of a sequence is "
                "time: let the step read a constant from outside"
            )
        known.append((f"{name} ({tensor.op.name})", shape_of(tensor)[0]))
    if not known:
        raise InvalidArgumentError("scan needs the number of steps: pass xs or length")
    for name, extent in known[1:]:
        if not same_extents([known[0][1]], [extent]):
            raise InvalidArgumentError(
                f"{known[0][0]} has {shape_text([known[0][1]])[1:-2]} steps and {name} "
                f"{shape_text([extent])[1:-2]}: all must have the same number"
            )
    return known[-1][1]


def _checked_carry(found: Any, init: Sequence[Tensor], form: Form, name: str) -> list[Tensor]:
    news, form_new = _tensors(found, f"the carry of {name}")
    if not form.like(form_new):
        raise InvalidArgumentError(
            f"the carry that {name} returns has the form {form_new}, but init has {form}: a step "
            "must return a carry of the same form"
        )
    for new, old, path in zip(news, init, paths(form, "carry"), strict=True):
        if not same_extents(shape_of(new), shape_of(old)) or dtype_of(new) != dtype_of(old):
            raise InvalidArgumentError(
                f"{path} is {dtype_of(old)}{shape_text(shape_of(old))} in init ({old.op.name}), "
                f"and {name} returns {dtype_of(new)}{shape_text(shape_of(new))} ({new.op.name}): "
                "shape and dtype must not change; cast or reshape one of them"
            )
    return news


def _own(tensor: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """A result that depends on no input of the step is replaced by a copy of the outer tensor."""
    inside = Graph([tensor]).depends_on(inputs)
    return tensor if hash(tensor.op) in inside else copy_of(tensor, tensor.op.name)


def _closed(
    results: Sequence[Tensor], inputs: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The outer tensors that a step reads: those that depend on none of its inputs.

    Stages that read nothing, such as zeros, stay inside.
    """
    graph = Graph(results)
    inside = graph.depends_on(inputs) | {hash(tensor.op) for tensor in results}
    given = {tensor_key(tensor) for tensor in inputs}
    consts: dict[tuple[int, int], Tensor] = {}
    for op in graph.ops:
        if hash(op) not in inside:
            continue
        for tensor in graph.reads(op):
            reads_nothing = is_compute(tensor.op) and not tensors_read_by(tensor.op)
            outside = hash(tensor.op) not in inside and tensor_key(tensor) not in given
            if outside and (is_placeholder(tensor.op) or not reads_nothing):
                consts.setdefault(tensor_key(tensor), tensor)
    return list(consts.values()), list(results)
