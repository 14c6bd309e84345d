"""Uses tuned schedules instead of the rules' where they are faster.

The rules are preceded by one that takes the kernels for which the database has a faster schedule.
Both schedules are measured once after a search, and the times are stored beside the database for
later builds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...codegen.modules import function_hash
from ...codegen.stages.primfunc import StageFunction, stage_function
from ...codegen.targets import with_cores
from ...errors import InvalidArgumentError
from ...graph.stage import is_compute, shape_of
from ..backends import finished
from ..declined import Declined, other_kind
from ..fusion.groups import FusionGroup
from ..kernel import Kernel
from ..machine import Machine
from ..primitives import scheduled
from ..rule import Rule, apply_rules, is_ragged
from .measure import seconds_of
from .options import Tuning
from .search import best_schedule, search

_TIMES = "times.json"  #: what the rules' schedules and the tuned ones take


def tuned_rules(
    kernels: Sequence[Kernel | FusionGroup], machine: Machine, rules: Sequence[Rule], tuning: Tuning
) -> tuple[Rule, ...]:
    """Search for schedules of kernels that the database lacks, and use the faster ones.

    Parameters
    ----------
    kernels : sequence of Kernel or FusionGroup
        The kernels. Those of constant shapes are tuned; fusion groups and opaque kernels keep the
        rules' schedules.
    machine : Machine
        A CPU.
    rules : sequence of Rule
        The rules for all other kernels.
    tuning : Tuning
        The options.

    Returns
    -------
    tuple of Rule
        The rules with the tuned one in front.

    Raises
    ------
    InvalidArgumentError
        If the target is not a CPU, or a package that the search needs is not installed.
    """
    if machine.kind != "llvm":
        raise InvalidArgumentError(
            f"tune: only kernels for a CPU are tuned, and the target is {machine.kind}"
        )
    target = with_cores(machine.target, machine.threads)
    functions: dict[str, StageFunction] = {}
    for kernel in kernels:
        function = _tunable(kernel)
        if function is not None:
            key = _key(function, machine)
            functions.setdefault(key, function)
    times = _read_times(tuning.folder)
    unknown = {key: function for key, function in functions.items() if key not in times}
    search({_name(key): function.func for key, function in unknown.items()}, target, tuning)
    found = {key: _best(key, function, target, tuning) for key, function in functions.items()}
    for kernel in kernels:
        function = _tunable(kernel)
        key = "" if function is None else _key(function, machine)
        best = found.get(key)
        if best is None or key in times:
            continue
        [by_rules] = apply_rules(kernel, machine, rules)
        times[key] = {
            "rules": _seconds(by_rules.launches, machine),
            "tuned": _seconds([best], machine),
        }
        _write_times(tuning.folder, times)
    faster = {
        key: best
        for key, best in found.items()
        if best is not None and key in times and times[key]["tuned"] < times[key]["rules"]
    }

    def tuned(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
        function = _tunable(kernel)
        best = None if function is None else faster.get(_key(function, machine))
        if function is None or best is None:
            return other_kind("no schedule that was found is faster than the rules'")
        return [replace(function, func=best.func)]

    return (tuned, *rules)


def _tunable(kernel: Kernel | FusionGroup) -> StageFunction | None:
    """The unscheduled function of a kernel of constant shapes."""
    if isinstance(kernel, FusionGroup) or not is_compute(kernel.root):
        return None
    if any(map(is_ragged, kernel.ops)):
        return None
    function = stage_function(kernel.ops, kernel.outputs)
    tensors = (*function.inputs, *function.outputs)
    constant = all(isinstance(extent, int) for tensor in tensors for extent in shape_of(tensor))
    return function if constant and not function.scalars else None


def _key(function: StageFunction, machine: Machine) -> str:
    """Equal for equal functions on equal machines, in every process."""
    digest = function_hash(function.func.without_attr("global_symbol"))
    return f"{digest & (2**64 - 1):016x} {machine.threads} {machine.exact_math} {machine.target}"


def _name(key: str) -> str:
    """The function's name in the database, which is part of the look-up key."""
    return f"kernel_{key[:16]}"


def _best(key: str, function: StageFunction, target: Any, tuning: Tuning) -> StageFunction | None:
    """The fastest schedule in the database."""
    if not (tuning.folder / "database_workload.json").exists():
        return None
    func = function.func.with_attr("global_symbol", _name(key))
    schedule = best_schedule(func, target, tuning)
    return None if schedule is None else scheduled(schedule, function)


def _seconds(launches: Sequence[StageFunction], machine: Machine) -> float:
    return sum(seconds_of(launch, machine.target) for launch in finished(launches, machine))


def _read_times(folder: Path) -> dict[str, dict[str, float]]:
    try:
        return dict(json.loads((folder / _TIMES).read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def _write_times(folder: Path, times: dict[str, dict[str, float]]) -> None:
    draft = folder / f"{_TIMES}.new"
    draft.write_text(json.dumps(times, indent=1, sort_keys=True) + "\n", "utf-8")
    draft.replace(folder / _TIMES)
