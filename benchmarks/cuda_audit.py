"""Kernels for a GPU looked at without one: ``python benchmarks/cuda_audit.py [case]``.

For every kernel of the suite, of further operators, of drawn programs (``--drawn 40``) and of
programs with a symbolic size (``--size 512``): the rule that made it, blocks and threads, how often
a thread goes to global memory, sectors of 32 bytes that a warp touches at a time as a multiple of
what it needs, floating point operations and necessary bytes, and an estimated time on an H100
beside the least that bytes and operations allow. ``--ptxas`` adds registers, spills and shared
memory as CUDA's compiler tells. The estimates are arithmetic (`Estimate`), no measurement.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from _cuda_accesses import SECTOR, Launch, Pattern, iterations_of, launches_of, patterns_of
from _cuda_programs import PROGRAMS
from cuda_kernels import SM_90, program
from dynamic_sizes import PROGRAMS as DYNAMIC
from suite.cases import ENTRIES
from suite.ours import tensors_of
from tvm import te

from benchmarks.generated.cases import programs as drawn_programs
from tvm_autodiff import build
from tvm_autodiff.codegen.stages.primfunc import StageFunction
from tvm_autodiff.expr.dtypes import itemsize
from tvm_autodiff.schedule.cuda.rules import CUDA_RULES
from tvm_autodiff.schedule.machine import as_target, machine_of
from tvm_autodiff.schedule.plan import Plan

# an H100 (SXM), as its makers describe it; latencies as microbenchmarks in the literature have them
MULTIPROCESSORS, RESIDENT = 132, 2048
MEMORY, CACHE, NEAR, FLOPS = 3.35e12, 5.5e12, 28e12, 60e12  #: bytes, bytes, bytes, operations / s
FAR_LATENCY, NEAR_LATENCY, LAUNCH = 450e-9, 25e-9, 2e-6
PHASE = 100e-9  #: a barrier, and 16 values of shared memory combined
ATOMICS = 2.0e12 / 4  #: additions of the second cache in a second, where they meet in no place
OVERLAP = 4  #: reads of a loop that are on their way at a time, where no barrier stands between


@dataclass(frozen=True)
class Estimate:
    """Seconds that a launch takes at least for each of its costs; the largest counts."""

    memory: float  #: each tensor once, at the speed of memory
    cache: float  #: what blocks read, each sector once a block, at the speed of the second cache
    near: float  #: what warps ask for, sector by sector, at the speed of the first cache
    compute: float  #: operations, at the speed of the threads that there are
    latency: float  #: what a thread waits for, times the blocks that run after each other
    atomics: float

    @property
    def seconds(self) -> float:
        """Of the whole launch, with its start."""
        return LAUNCH + max(vars(self).values())

    @property
    def why(self) -> str:
        """The largest cost."""
        costs = vars(self)
        return max(costs, key=lambda name: costs[name])


@dataclass(frozen=True)
class Row:
    """What is told of a kernel."""

    case: str
    rule: str
    name: str
    grid: str
    each: float  #: accesses of global memory by a thread, one after the other
    coalesced: float  #: sectors, as a multiple of those needed
    flops: float
    bytes: int
    seconds: float
    ideal: float
    why: str


def estimate(launch: Launch, patterns: Sequence[Pattern], flops: float, moved: int) -> Estimate:
    """The costs of a launch."""
    blocks, threads = launch.extent("blockIdx"), launch.extent("threadIdx")
    warps = blocks * -(-threads // 32)
    asked = sum(p.each * p.sectors for p in patterns) * warps * SECTOR
    different = _different(patterns) * blocks * SECTOR
    at_once = MULTIPROCESSORS * max(1, min(32, RESIDENT // threads))
    busy = min(1.0, blocks * threads / (MULTIPROCESSORS * 256), blocks / MULTIPROCESSORS)
    atomic = sum(p.each for p in patterns if p.access.atomic) * blocks * threads
    return Estimate(
        memory=moved / MEMORY,
        cache=different / CACHE,
        near=asked / NEAR,
        compute=flops / FLOPS / busy,
        latency=-(-blocks // at_once) * _waiting(launch, patterns),
        atomics=atomic / ATOMICS,
    )


def _different(patterns: Sequence[Pattern]) -> float:
    """Sectors that a block touches, reads of one tensor by several expressions counted once."""
    most: dict[tuple[str, bool], float] = {}
    for pattern in patterns:
        key = str(pattern.access.buffer.name), pattern.access.writes
        most[key] = max(most.get(key, 0.0), pattern.block_sectors)
    return sum(most.values())


def _waiting(launch: Launch, patterns: Sequence[Pattern]) -> float:
    """Seconds that one thread waits: loops in order, reads of one loop together."""
    loops: dict[tuple[int, ...], float] = {}
    for pattern in patterns:
        if pattern.access.writes and not pattern.access.atomic:
            continue
        serial = [loop for loop in pattern.access.loops if loop.kind == "serial"]
        times = pattern.each
        warps = -(-launch.extent("threadIdx") // 32)
        asked = max(1e-9, pattern.each * pattern.sectors * warps)
        missed = min(1.0, pattern.block_sectors / asked)
        strips = max(1.0, times / (OVERLAP if not launch.shared else 2 * OVERLAP))
        key = tuple(id(loop.var) for loop in serial)
        wait = strips * (NEAR_LATENCY + missed * FAR_LATENCY)
        loops[key] = max(loops.get(key, 0.0), wait)
    return sum(loops.values()) + launch.phases * PHASE


def rows_of(
    case: str, outputs: Sequence[Any], sizes: Mapping[str, int] | None = None
) -> list[Row]:
    """What is told of the kernels of a program, in their order, for some sizes."""
    machine = machine_of(as_target(SM_90), 1)
    plan = Plan([], list(outputs), [], machine, CUDA_RULES)
    plan.steps()
    return [
        _row(case, one.rule, launch, sizes or {})
        for one in plan.scheduled
        for launch in one.launches
    ]


def _row(case: str, rule: str, launch: StageFunction, sizes: Mapping[str, int]) -> Row:
    grids, seconds, why, flops, each, sectors, ideal = [], 0.0, "", 0.0, 0.0, 0.0, 0.0
    moved, slowest = 0, 0.0
    for part in launches_of(launch.func, sizes):
        moved = sum(_bytes(tensor, part) for tensor in (*launch.inputs, *launch.outputs))
        patterns = patterns_of(part)
        threads = part.extent("blockIdx") * part.extent("threadIdx")
        here = sum(iterations_of(loops, part) * n for loops, n in part.arithmetic) * threads
        costs = estimate(part, patterns, here, moved)
        grids.append(f"{part.extent('blockIdx')}x{part.extent('threadIdx')}")
        seconds += costs.seconds
        if costs.seconds > slowest:
            slowest, why = costs.seconds, costs.why
        flops += here
        each = max(each, *(p.each for p in patterns), 0.0)
        sectors += sum(p.each * p.sectors for p in patterns)
        ideal += sum(p.each * p.ideal for p in patterns)
    least = LAUNCH + max(moved / MEMORY, flops / FLOPS)
    name = "+".join(tensor.op.name for tensor in launch.outputs)[:28]
    rule = rule if "," not in rule else "of a chain"
    multiple = sectors / ideal if ideal else 1.0
    return Row(case, rule, name, " ".join(grids), each, multiple, flops, moved, seconds, least, why)


def _bytes(tensor: Any, launch: Launch) -> int:
    return itemsize(str(tensor.dtype)) * prod(launch.number(extent) for extent in tensor.shape)


def ptxas(outputs: Sequence[Any], inputs: Sequence[Any]) -> str:
    """Registers, spills and shared memory, the most of any kernel of a program."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return "nvcc is not on the PATH"
    source = build(inputs, outputs, target=SM_90, cache=False).source()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cu"
        path.write_text(source)
        command = [nvcc, "-cubin", "-arch=sm_90", "-w", "-Xptxas", "-v", "--use_fast_math"]
        done = subprocess.run(
            [*command, "-o", f"{folder}/k.cubin", str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
    text = done.stdout + done.stderr

    def most(pattern: str) -> int:
        return max((int(found) for found in re.findall(pattern, text)), default=0)

    registers, spilled = most(r"Used (\d+) registers"), most(r"(\d+) bytes spill stores")
    stack, shared = most(r"(\d+) bytes stack"), most(r"(\d+) bytes smem")
    return (
        f"{text.count('Compiling entry')} kernels, at most {registers} registers, "
        f"{spilled} bytes spilled, {stack} of stack, {shared} shared"
    )


Made = tuple[list[Any], list[Any], dict[str, int]]  #: inputs, outputs, symbolic sizes


def programs(drawn: int = 0, size: int = 512) -> dict[str, Callable[[], Made]]:
    """The suite's cases, further operators, drawn programs, and programs of a symbolic size."""

    def of_entry(entry: Any) -> Callable[[], Made]:
        return lambda: (*_dense(entry.case()), {})

    found = {name: of_entry(entry) for name, entry in ENTRIES.items()}
    found |= {name: lambda make=make: (*make(), {}) for name, make in PROGRAMS.items()}
    found |= {entry.name: of_entry(entry) for entry in drawn_programs(0, drawn)}
    for name, make in DYNAMIC.items():
        found[f"{name}-{size}"] = lambda make=make: (*make(size), {})
        found[f"{name}-n"] = lambda make=make: (*make(te.var("n")), {"n": size})
    return found


def _dense(case: Any) -> tuple[list[Any], list[Any]]:
    """A program; of a sparse matrix its values."""
    if case.derivative != "csr":
        return program(case)[:2]
    inputs, [matrix] = tensors_of(case)
    return [*inputs, *(place for place, _ in matrix.constants)], [matrix.values]


def main() -> None:
    parser = argparse.ArgumentParser(description="kernels for a GPU, looked at without one")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(programs())}")
    parser.add_argument("--drawn", type=int, default=0, help="how many drawn programs beside them")
    parser.add_argument("--size", type=int, default=512, help="the value of symbolic sizes")
    parser.add_argument("--ptxas", action="store_true", help="compile with nvcc, tell registers")
    parser.add_argument("--summary", action="store_true", help="one line a case")
    options = parser.parse_args()
    known = programs(options.drawn, options.size)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}")
    rows: list[Row] = []
    print("| case | kernels | estimate us | least us |")
    print("|---|---|---|---|")
    for name in options.names or known:
        inputs, outputs, sizes = known[name]()
        mine = rows_of(name, outputs, sizes)
        rows += mine
        total, least = sum(r.seconds for r in mine), sum(r.ideal for r in mine)
        told = f" {ptxas(outputs, inputs)} |" if options.ptxas else ""
        print(f"| {name} | {len(mine)} | {total * 1e6:.1f} | {least * 1e6:.1f} |{told}", flush=True)
    if options.summary:
        return
    print(
        "\n| case | kernel | rule | blocks x threads | accesses | sectors | MFLOP | MB "
        "| estimate us | least us | ratio | by |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: row.ideal / row.seconds):
        print(
            f"| {row.case} | {row.name} | {row.rule} | {row.grid} | {row.each:.0f} "
            f"| {row.coalesced:.1f} | {row.flops / 1e6:.1f} | {row.bytes / 1e6:.2f} "
            f"| {row.seconds * 1e6:.1f} | {row.ideal * 1e6:.1f} "
            f"| {row.seconds / row.ideal:.1f} | {row.why} |"
        )


if __name__ == "__main__":
    main()
