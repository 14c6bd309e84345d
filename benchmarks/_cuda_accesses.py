"""Counts the memory accesses of a scheduled GPU kernel by evaluating its indices in numpy.

For each access to global memory it estimates how often a thread makes it, how many sectors of 32
bytes a warp touches at once, how many it would touch if its elements were contiguous, and how many
distinct sectors a block touches in total. Warps, blocks and iterations are drawn at random with a
fixed seed. Indices that are data are random too, and symbolic sizes are given by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from tvm_autodiff.codegen.passes.launches import lowered
from tvm_autodiff.expr.nodes import const_value, is_float, node_id, op_name, operands
from tvm_autodiff.expr.rewrite import depends_on

SECTOR = 32  #: bytes that memory hands over at least
LANES = 32  #: threads of a warp
SAMPLES = 96  #: warps that are looked at
MAX_POINTS = 1 << 20  #: accesses of a block that are looked at one by one
_FREE = frozenset(("var", "const", "cast", "let", "select", "if_then_else", "likely", "tensorload"))
_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


@dataclass(frozen=True)
class Loop:
    """A loop around an access: over threads, over the lanes of a vector, or serial."""

    var: Any
    low: Any
    extent: Any
    kind: str  #: ``"blockIdx.x"``, ``"threadIdx.x"``..., ``"vector"`` or ``"serial"``


@dataclass(frozen=True)
class Access:
    """A read or write of global memory, with the loops and conditions around it."""

    buffer: Any
    indices: tuple[Any, ...]
    loops: tuple[Loop, ...]
    guards: tuple[Any, ...]
    writes: bool
    atomic: bool = False


@dataclass
class Launch:
    """One grid of threads."""

    loops: list[Loop] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    arithmetic: list[tuple[tuple[Loop, ...], int]] = field(default_factory=list)
    shared: bool = False
    phases: int = 0  #: writes to shared memory outside of loops, for which a block's threads wait
    sizes: Mapping[str, int] = field(default_factory=dict)  #: symbolic sizes by name

    def extent(self, kind: str) -> int:
        """Threads of a block or blocks, along all axes of this kind."""
        found = {loop.kind: loop.extent for loop in self.loops if loop.kind.startswith(kind)}
        return prod(self.number(extent) for extent in found.values())

    def number(self, extent: Any) -> int:
        """An extent or size as a number."""
        return int(evaluate(extent, {}, self.sizes))


@dataclass(frozen=True)
class Pattern:
    """What an access costs.

    Attributes
    ----------
    each : float
        How often a thread makes the access; all lanes of a vector count as one.
    sectors, ideal : float
        Sectors that a warp touches at once, and would touch if its elements were contiguous.
    block_sectors : float
        Distinct sectors that a block touches in total.
    """

    access: Access
    each: float
    sectors: float
    ideal: float
    block_sectors: float


def launches_of(func: Any, sizes: Mapping[str, int] | None = None) -> list[Launch]:
    """The launches of a scheduled function, for some values of its symbolic sizes."""
    function = lowered(func)
    mine = {node_id(param): param for param in function.params}
    found: list[Launch] = []
    pending: list[tuple[Any, tuple[Loop, ...], tuple[Any, ...]]] = [(function.body, (), ())]
    while pending:
        node, loops, guards = pending.pop()
        name = type(node).__name__
        if name == "SeqStmt":
            pending += [(part, loops, guards) for part in reversed(list(node.seq))]
        elif name == "AttrStmt" and node.attr_key == "thread_extent":
            kind = str(node.node.thread_tag)
            if not any(loop.kind[0] in "bt" for loop in loops):
                found.append(Launch(sizes=sizes or {}))
            loop = Loop(node.node.var, 0, node.value, kind)
            found[-1].loops.append(loop)
            pending.append((node.body, (*loops, loop), guards))
        elif name == "For":
            kind = "vector" if node.kind == tirx.ForKind.VECTORIZED else "serial"
            loop = Loop(node.loop_var, node.min, node.extent, kind)
            pending.append((node.body, (*loops, loop), guards))
        elif name == "IfThenElse":
            if node.else_case is not None:
                pending.append((node.else_case, loops, guards))
            pending.append((node.then_case, loops, (*guards, node.condition)))
            _read(found, node.condition, loops, guards, mine)
        elif name == "BufferStore":
            if found:
                _stored(found[-1], node, loops, guards, mine)
            _read(found, node.value, loops, guards, mine)
        elif name == "Evaluate":
            _read(found, node.value, loops, guards, mine)
        else:
            value = getattr(node, "value", None)
            if name != "AttrStmt" and value is not None and hasattr(value, "ty"):
                _read(found, value, loops, guards, mine)
            if hasattr(node, "body"):
                pending.append((node.body, loops, guards))
    return found


def _stored(
    launch: Launch,
    node: Any,
    loops: tuple[Loop, ...],
    guards: tuple[Any, ...],
    mine: Mapping[int, Any],
) -> None:
    if node_id(node.buffer) in mine:
        launch.accesses.append(Access(node.buffer, tuple(node.indices), loops, guards, True))
    elif str(node.buffer.scope()).startswith("shared"):
        launch.shared = True
        serial = [launch.number(loop.extent) for loop in loops if loop.kind == "serial"]
        launch.phases += all(extent == 1 for extent in serial)


def _read(
    found: Sequence[Launch],
    value: Any,
    loops: tuple[Loop, ...],
    guards: tuple[Any, ...],
    mine: Mapping[int, Any],
) -> None:
    """Record reads and arithmetic of an expression; reads in a branch get its condition."""
    if not found:
        return
    launch = found[-1]
    floats = 0
    seen: set[int] = set()
    pending = [(value, guards, False)]
    while pending:
        node, around, atomic = pending.pop()
        name = op_name(node)
        if name == "tensorload":
            if node_id(node.source) in mine:
                access = Access(node.source, tuple(node.indices), loops, around, atomic, atomic)
                launch.accesses.append(access)
            pending += [(index, around, False) for index in node.indices]
            continue
        if node_id(node) in seen:
            continue
        seen.add(node_id(node))
        floats += is_float(node) and name not in _FREE and not name.startswith("call")
        parts = operands(node)
        if name == "if_then_else":
            condition, then, other = parts
            pending += [(condition, around, False), (other, around, False)]
            pending.append((then, (*around, condition), False))
        else:
            called = name == "address_of"
            pending += [(part, around, called) for part in parts if hasattr(part, "ty")]
    if floats:
        launch.arithmetic.append((loops, floats))


def patterns_of(launch: Launch) -> list[Pattern]:
    """What each access of a launch costs; equal reads in a loop count once, as a register keeps the
    value.
    """
    rng = np.random.default_rng(0)
    found: dict[Any, Access] = {}
    for access in launch.accesses:
        around = tuple(node_id(loop.var) for loop in access.loops)
        key = node_id(access.buffer), str(access.indices), around, access.writes
        found.setdefault(key, access)
    return [_pattern(access, launch, rng) for access in found.values()]


def iterations_of(loops: Sequence[Loop], launch: Launch) -> float:
    """How often one thread runs the loops, averaged over a few draws if bounds vary."""
    _, weight = _drawn(loops, launch, np.random.default_rng(0))
    return float(weight.mean())


def _drawn(
    loops: Sequence[Loop], launch: Launch, rng: Any
) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """Loop variables of random warps, shaped (samples, lanes, 1), and iterations of each."""
    threads = [loop for loop in launch.loops if loop.kind.startswith("threadIdx")]
    extents = {loop.kind: launch.number(loop.extent) for loop in threads}
    block = prod(extents.values())
    warp = rng.integers(0, max(1, -(-block // LANES)), (SAMPLES, 1, 1))
    linear = np.minimum(warp * LANES + np.arange(LANES)[None, :, None], block - 1)
    places = {}
    for kind in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
        places[kind] = linear % extents.get(kind, 1)
        linear = linear // extents.get(kind, 1)
    values: dict[int, np.ndarray] = {}
    weight = np.ones((SAMPLES, 1, 1))
    for loop in loops:
        low = evaluate(loop.low, values, launch.sizes)
        extent = np.asarray(evaluate(loop.extent, values, launch.sizes))
        if loop.kind in places:
            drawn = places[loop.kind]
        elif loop.kind == "vector":
            drawn = np.arange(int(extent.max()))[None, None, :]
        else:
            drawn = low + np.floor(rng.random((SAMPLES, 1, 1)) * np.maximum(extent, 1)).astype(int)
            if not loop.kind.startswith("blockIdx"):
                weight = weight * np.maximum(extent, 0)
        values[node_id(loop.var)] = np.asarray(drawn)
    return values, weight


def _pattern(access: Access, launch: Launch, rng: Any) -> Pattern:
    values, weight = _drawn(access.loops, launch, rng)
    place, itemsize = _addresses(access, values, launch)
    active = _active(access.guards, values, launch)
    shape = np.broadcast_shapes(place.shape, active.shape, (SAMPLES, LANES, 1))
    place, active = np.broadcast_to(place, shape), np.broadcast_to(active, shape)
    touched, needed = [], []
    for places, here in zip(place, active, strict=True):
        mine = np.unique(places[here])
        if mine.size:
            touched.append(np.unique(mine * itemsize // SECTOR).size)
            needed.append(-(-mine.size * itemsize // SECTOR))
    happens = float((weight * active.any(axis=(1, 2), keepdims=True)).mean())
    sectors = float(np.mean(touched)) if touched else 0.0
    ideal = float(np.mean(needed)) if needed else 0.0
    warps = -(-launch.extent("threadIdx") // LANES)
    asked = happens * sectors * warps
    return Pattern(access, happens, sectors, ideal, min(asked, _of_block(access, launch, rng)))


def _of_block(access: Access, launch: Launch, rng: Any) -> float:
    """Distinct sectors that one block touches; infinite if they cannot be counted."""
    inner = [loop for loop in access.loops if not loop.kind.startswith("blockIdx")]
    within = [loop.var for loop in inner]
    if any(depends_on(loop.extent, within) for loop in inner if not isinstance(loop.extent, int)):
        return float("inf")
    extents = [launch.number(loop.extent) for loop in inner]
    if prod(extents) > MAX_POINTS:
        return float("inf")
    counts = []
    for _ in range(2):
        values = {
            node_id(loop.var): np.asarray(
                int(rng.integers(0, max(1, launch.number(loop.extent))))
            )
            for loop in access.loops
            if loop.kind.startswith("blockIdx")
        }
        for number, (loop, extent) in enumerate(zip(inner, extents, strict=True)):
            shape = [1] * len(inner)
            shape[number] = extent
            low = evaluate(loop.low, values, launch.sizes)
            values[node_id(loop.var)] = low + np.arange(extent).reshape(shape)
        place, itemsize = _addresses(access, values, launch)
        active = _active(access.guards, values, launch)
        shape = np.broadcast_shapes(place.shape, active.shape)
        place = np.broadcast_to(place, shape)[np.broadcast_to(active, shape)]
        counts.append(np.unique(place * itemsize // SECTOR).size)
    return float(np.mean(counts))


def _addresses(
    access: Access, values: Mapping[int, np.ndarray], launch: Launch
) -> tuple[np.ndarray, int]:
    place: Any = np.asarray(0)
    for index, dim in zip(access.indices, access.buffer.shape, strict=True):
        place = place * launch.number(dim) + evaluate(index, values, launch.sizes)
    return np.asarray(place), tvm.DataType(str(access.buffer.dtype)).bits // 8 or 1


def _active(
    guards: Sequence[Any], values: Mapping[int, np.ndarray], launch: Launch
) -> np.ndarray:
    active: Any = np.asarray(True)
    for guard in guards:
        active = np.logical_and(active, evaluate(guard, values, launch.sizes))
    return np.asarray(active)


def evaluate(expr: Any, values: Mapping[int, np.ndarray], sizes: Mapping[str, int]) -> Any:
    """The value of an integer expression over arrays; what is read from memory is random."""
    if isinstance(expr, int):
        return expr
    done: dict[int, Any] = {}
    for node in _postorder(expr):
        name = op_name(node)
        if name == "tensorload":
            indices = [done[node_id(index)] for index in node.indices]
            shape = np.broadcast_shapes(*(np.shape(index) for index in indices))
            done[node_id(node)] = np.random.default_rng(1).integers(0, 4096, shape)
            continue
        parts = [done[node_id(part)] for part in _parts(node)]
        done[node_id(node)] = _value(node, name, parts, values, sizes)
    return done[node_id(expr)]


def _value(
    node: Any,
    name: str,
    parts: Sequence[Any],
    values: Mapping[int, np.ndarray],
    sizes: Mapping[str, int],
) -> Any:
    if name == "var":
        return values.get(node_id(node), sizes.get(str(node.name), 0))
    if name == "const":
        return const_value(node)
    if name in _COMPARED:
        return _COMPARED[name](*parts)
    if name in ("floordiv", "truncdiv"):
        return np.floor_divide(parts[0], np.where(np.asarray(parts[1]) == 0, 1, parts[1]))
    if name in ("floormod", "truncmod"):
        return np.mod(parts[0], np.where(np.asarray(parts[1]) == 0, 1, parts[1]))
    if name in ("select", "if_then_else"):
        return np.where(*parts)
    if name == "not":
        return np.logical_not(parts[0])
    if name in ("cast", "likely", "call_pure_extern"):
        return parts[-1]
    return parts[0] if parts else 0


def _parts(node: Any) -> list[Any]:
    if op_name(node) == "tensorload":
        return list(node.indices)
    return [part for part in operands(node) if hasattr(part, "ty")]


def _postorder(root: Any) -> Iterator[Any]:
    seen: set[int] = set()
    pending = [(root, False)]
    while pending:
        node, ready = pending.pop()
        if ready:
            yield node
        elif node_id(node) not in seen:
            seen.add(node_id(node))
            pending.append((node, True))
            pending += [(part, False) for part in _parts(node)]
