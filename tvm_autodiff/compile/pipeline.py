"""`lower` and `build`: check the arguments, schedule the program, and call TVM's compiler."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from ..codegen.deep import raised_while_waiting, run_deep
from ..codegen.modules import Module
from ..debug import CheckedFunction
from ..debug.index_inspector import IndexInspector
from ..debug.inspector import Inspector
from ..errors import AutodiffError, InvalidArgumentError, LoweringError, PlainScheduleWarning
from ..expr.nodes import tensor_key
from ..garbage import collected_later
from ..graph.packed_calls import refuse_unknown_functions
from ..keywords import checked_keywords
from ..runtime.compiled import CompiledFunction
from ..runtime.device import DeviceFunction, has_gpu
from ..runtime.files.build_cache import BuildCache, cache_of
from ..runtime.files.export import Standalone
from ..runtime.files.library import DamagedLibraryError, LinkError, UnloadableError, library_bytes
from ..runtime.files.loading import loaded
from ..runtime.files.manifest import Manifest
from ..runtime.modules import can_link
from ..runtime.threads import check_threads, use_threads
from ..schedule.backends import rules_for
from ..schedule.compilation import compiled
from ..schedule.emit.direct import SizeRange
from ..schedule.emit.program import Program
from ..schedule.machine import Machine, as_target, machine_of
from ..schedule.plan import Plan
from ..schedule.rule import Rule
from ..schedule.size_parts import Plans, sized_programs
from ..schedule.tuning.options import Tuning
from ..sparse.function import takes_sparse
from ..warn import warn
from ..zero_elimination.passes.reductions import solve_masks
from .manifest import manifest_of
from .request import Request, Tensors, Updates, request_of

KEPT_SECONDS = 0.3  #: builds that take less are not worth a file


@checked_keywords
def lower(
    inputs: Tensors, outputs: Tensors, target: Any = None, *, exact_math: bool = False
) -> Module:
    """Lower tensors to a scheduled module.

    Parameters
    ----------
    inputs : Tensor or sequence of Tensor
        The placeholders that the outputs read, in the order of the parameters. A placeholder that
        nothing reads stays a parameter.
    outputs : Tensor or sequence of Tensor
        The tensors to compute.
    target : optional
        An LLVM or a CUDA target. None means this host's CPU with its features, and ``"cuda"`` this
        machine's GPU (sm_90 if there is none).
    exact_math : bool
        As in `build`.

    Returns
    -------
    IRModule
        A module whose ``main`` takes the inputs followed by the outputs, which it writes. It is a
        PrimFunc for a single kernel, and otherwise a Relax function that calls the kernels.

    Raises
    ------
    InvalidArgumentError
        If an argument is not a tensor, is repeated, or is both an input and an output.
    LoweringError, OutOfBoundsError
        As in `build`.

    Examples
    --------
    >>> from tvm import te
    >>> A = te.placeholder((4,), name="A")
    >>> module = lower(A, te.compute((4,), lambda i: A[i] + 1.0, name="B"))
    >>> [var.name_hint for var in module.get_global_vars()]
    ['main']
    """
    machine = replace(machine_of(as_target(target), check_threads(None)), exact_math=exact_math)
    request = request_of(inputs, outputs)

    def scheduled() -> Program:
        return _plan(request, machine, rules_for(machine)).program()

    return run_deep(scheduled).module


@checked_keywords
@takes_sparse
def build(
    inputs: Tensors,
    outputs: Tensors,
    target: Any = None,
    *,
    updates: Updates | None = None,
    num_threads: int | None = None,
    exact_math: bool = False,
    cache: bool | str | os.PathLike[str] = True,
    tune: Tuning | None = None,
    debug_nan: bool = False,
    debug_indices: bool = False,
) -> CompiledFunction:
    """Compile tensors into a function of arrays.

    Parameters
    ----------
    inputs : Tensor or sequence of Tensor
        The placeholders that the outputs read, in the order of the arguments. A placeholder that
        nothing reads stays an argument. It is checked, and may define a symbolic size.
    outputs : Tensor or sequence of Tensor
        The tensors that a call computes. It returns a list for a sequence and one array for a
        single tensor. Sparse results, as of ``jacobian(..., format="csr")``, are scipy.sparse
        matrices.
    target : optional
        An LLVM or a CUDA target. None means this host's CPU with its features, and ``"cuda"`` this
        machine's GPU (sm_90 if there is none).
    updates : mapping from Tensor to Tensor, or sequence of pairs, optional
        Inputs and their new values, of equal shape and dtype. A call writes the new values into the
        arrays of these inputs, and does not return them. All other computation reads the old
        values.
    num_threads : int, optional
        The number of CPU threads. None means one for each core that this process may use, within
        the quota of its control group.
    exact_math : bool
        Whether a CPU rounds exactly as the expressions are written. It has no effect on a GPU. By
        default:

        - exp, log, tanh and similar functions of float32, float16 and bfloat16, and exp of float64,
          are vectorised arithmetic. The error is a few units in the last place (see the table in
          docs/internals/performance.md); zeros, infinities and NaN give the C library's results. If
          true, they are calls of the C library, exp10 is a power, and sigmoid is computed in
          float64.
        - float16 and bfloat16 are computed in float32, and rounded where a kernel stores them and
          where the expressions cast. If true, each operation on float16 is rounded.
        - A divisor shared by a row becomes factors, which adds one rounding and stays finite
          wherever the quotient is. If true, it divides each element.
        - A factor or a divisor of a whole sum that is expensive to compute, or that stands beside
          expensive functions, is applied to the sum. The sum of terms near the largest number may
          then be infinite. If true, it is applied to each term.
        - A sum over an axis that its source does not read is a product with the number of elements.
          If true, each element is added.
        - Products whose sums have bounds that vary along the output are taken over boxes, with
          zeros outside of the bounds. A zero times an infinity or NaN there is NaN. If true, the
          loops end at the bounds.
        - Loops over time whose states change affinely run in several parts. If true, they run step
          by step.
        - Subnormal numbers (below 1.2e-38 in float32, 2.2e-308 in float64) count as zero, as in
          XLA, since a CPU takes over a hundred cycles for each. The caller's thread keeps its mode.
          If true, subnormal numbers are kept.

        In both cases the library chooses the order of sums, and of products of three or more
        factors under a sum, and sums float16 and bfloat16 in float32; ``a*b + c`` may be one fused
        operation, which rounds once.
    cache : bool or path
        Whether to store the compiled program on disk for other processes that build the same
        program. True stores programs that took long to compile in the user's cache folder, which
        `clear_cache` empties. A path stores every program in that folder. The files are executed as
        code, so the folder must belong to this user. Nothing is stored if the user's cache folder
        cannot be used, nothing can be linked, or a library cannot be loaded.
    tune : Tuning, optional
        Search for kernel schedules, which takes seconds for each trial, and use those that are
        faster than the rules'. The results are stored in the database of `tune`, not in the cache.
    debug_nan : bool
        Whether each call first computes every stage separately, and raises a `NonFiniteError` that
        names the first stage with a NaN, or with an infinity computed from finite values.
    debug_indices : bool
        Whether each call first looks at all indices that are data, and raises an `OutOfBoundsError`
        that names the first stage that reads outside of a tensor. Otherwise such a read has no
        defined value, and may end the process. Steps of `scan` are not looked at.

    Returns
    -------
    CompiledFunction

    Raises
    ------
    InvalidArgumentError
        If an argument is not a tensor, is repeated, or is both an input and an output; if a new
        value does not fit its input; or if the given cache folder cannot be used, or other users
        can write into it.
    LoweringError
        If a placeholder is missing, a variable is free, a stage is a te.scan, or TVM compiles no
        schedule of a stage.
    OutOfBoundsError
        If a stage certainly reads outside a tensor.

    Warns
    -----
    PlainScheduleWarning
        If stages are slower than necessary: TVM rejected the code of their schedule, or no schedule
        rule fits a stage that is more than a twentieth of the estimated time. The text names the
        stages and the reasons, and `CompiledFunction.profile` shows their cost.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import te
    >>> A = te.placeholder((4,), name="A")
    >>> double = build(A, te.compute((4,), lambda i: A[i] * 2.0, name="B"))
    >>> double(np.arange(4, dtype="float32"))
    array([0., 2., 4., 6.], dtype=float32)

    Update an input in place:

    >>> new = te.compute((4,), lambda i: A[i] + 1.0, name="new")
    >>> total = te.compute((), lambda: A[0] + A[3], name="total")
    >>> step = build(A, total, updates={A: new})
    >>> state = np.arange(4, dtype="float32")
    >>> float(step(state)), float(step(state)), state
    (3.0, 5.0, array([2., 3., 4., 5.], dtype=float32))

    Store the compiled program in a folder, for other processes:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     float(build(A, total, cache=folder)(state))
    7.0
    """
    threads = check_threads(num_threads)
    machine = replace(machine_of(as_target(target), threads), exact_math=exact_math)
    request = request_of(inputs, outputs, updates)
    wanted = [*request.outputs, *(new for _, new in request.updates)]
    if machine.kind == "llvm":  # code for a GPU may be for another machine
        refuse_unknown_functions(wanted)
    if tune is not None and not isinstance(tune, Tuning):
        raise InvalidArgumentError(f"tune must be a Tuning, got {type(tune).__name__}")
    function = _built(request, machine, cache, tune)
    if function.notice is not None:
        warn(function.notice, PlainScheduleWarning)
    checked = partial(_built, machine=machine, cache=False, tune=None)
    compiled = lambda given, all_: checked(request_of(given, all_))  # noqa: E731
    checks: list[Callable[..., None]] = []
    if debug_indices:  # first: what debug_nan computes reads at these indices
        checks.append(IndexInspector(request.inputs, wanted, compiled))
    if debug_nan:
        checks.append(Inspector(request.inputs, wanted, compiled))
    return cast("CompiledFunction", CheckedFunction(function, checks)) if checks else function


@collected_later()
def _built(
    request: Request,
    machine: Machine,
    cache: bool | str | os.PathLike[str],
    tune: Tuning | None,
) -> CompiledFunction:
    threads = machine.threads
    make = DeviceFunction if machine.kind == "cuda" else CompiledFunction
    alone = partial(_compiled, request, machine, tune, direct=False)
    if tune is not None:
        return make(*_compiled(request, machine, tune), threads, standalone=alone)
    # a library for a GPU cannot be loaded without one
    store = cache_of(cache) if machine.kind != "cuda" or has_gpu() else None
    key = request.key(machine) if store is not None else None
    if store is not None and key is not None:
        found = _from_cache(store, key, request, machine, make, alone)
        if found is not None:
            return found
    begin = time.perf_counter()
    executable, manifest = _compiled(request, machine)
    slow = time.perf_counter() - begin >= KEPT_SECONDS or isinstance(cache, (str, os.PathLike))
    if store is None or key is None or not slow or not can_link():
        return make(executable, manifest, threads, standalone=alone)
    try:
        data = library_bytes(executable, manifest)
        with contextlib.suppress(OSError):  # a full disk keeps nobody from computing
            store.put(key, data)
        # a linked program does not have to be compiled again at the first call
        return loaded(
            data,
            threads,
            folder=store.folder,
            recompile=lambda: executable,
            standalone=alone,
            make=make,
        )
    except (LinkError, UnloadableError, LoweringError):
        # there is no linker, no folder to load from, or the target is not this machine: compile
        return make(executable, manifest, threads, standalone=alone)


def _from_cache(
    store: BuildCache,
    key: str,
    request: Request,
    machine: Machine,
    make: type[CompiledFunction],
    standalone: Standalone,
) -> CompiledFunction | None:
    data = store.get(key)
    if data is None:
        return None
    try:
        function = loaded(
            data,
            machine.threads,
            folder=store.folder,
            recompile=lambda: _compiled(request, machine)[0],
            standalone=standalone,
            make=make,
        )
        function.from_cache = True
        return function
    except (DamagedLibraryError, UnloadableError, LoweringError):  # built anew, and written over
        return None


def _plan(
    request: Request, machine: Machine, rules: Sequence[Rule], tiles: bool = False
) -> Plan:
    """The kernels of a request; sums under equations that data solve become scatters and reads."""
    count = len(request.outputs)
    wanted = solve_masks([*request.outputs, *(new for _, new in request.updates)])
    updates = [(old, new) for (old, _), new in zip(request.updates, wanted[count:], strict=True)]
    return Plan(
        request.inputs,
        wanted[:count],
        updates,
        machine,
        rules,
        solve_masks,
        tiles=tiles,
        constants=tiles,
    )


def _compiled(
    request: Request, machine: Machine, tune: Tuning | None = None, *, direct: bool = True
) -> tuple[Any, Manifest]:
    """The executable of a program, and its manifest; `direct` as in `emit.program.assemble`."""
    rules = rules_for(machine)
    try:
        tiles = machine.kind == "llvm" and tune is None  # what is tuned are kernels of a program
        plans = Plans(run_deep(_plan, request, machine, rules, tiles))
        if tune is not None:
            plans.usual.rules = run_deep(_tuned, plans.usual, tune)
        elif direct and machine.kind == "llvm":
            plans.others = run_deep(_plans_of_sizes, request, machine, rules)
        done = compiled(plans, direct=direct)
    except AutodiffError:
        raise
    except Exception as error:
        if raised_while_waiting(error):
            raise
        raise _fault(request, error) from error
    return done.executable, manifest_of(request, done, plans)


def _plans_of_sizes(
    request: Request, machine: Machine, rules: Sequence[Rule]
) -> list[tuple[SizeRange, Plan]]:
    """The plans for some sizes of a request."""
    count = len(request.outputs)
    wanted = [*request.outputs, *(new for _, new in request.updates)]
    found = []
    for one in sized_programs(request.inputs, wanted, request.ones(), machine):
        places = {tensor_key(a): b for a, b in zip(request.inputs, one.inputs, strict=True)}
        olds = [places[tensor_key(old)] for old, _ in request.updates]
        updates = list(zip(olds, one.tensors[count:], strict=True))
        sized = replace(request, inputs=one.inputs, outputs=one.tensors[:count], updates=updates)
        found.append((one.when, _plan(sized, one.machine, rules, True)))
    return found


def _fault(request: Request, error: Exception) -> LoweringError:
    names = ", ".join(str(tensor.op.name) for tensor in request.outputs)
    return LoweringError(
        f"building {names} failed with {type(error).__name__}: {error}. This is a bug in "
        "tvm_autodiff: please report it with the program"
    )


def _tuned(plan: Plan, tune: Tuning) -> tuple[Rule, ...]:
    try:  # meta-schedule needs packages that only tuning needs
        from ..schedule.tuning.choice import tuned_rules
    except ImportError as error:
        raise InvalidArgumentError(
            f"tune: {error.name or error} is not installed: pip install 'tvm_autodiff[tune]'"
        ) from error
    use_threads(plan.machine.threads)
    return tuned_rules(plan.kernels, plan.machine, plan.rules, tune)
