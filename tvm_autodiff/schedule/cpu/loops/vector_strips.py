"""Writes one run of a loop as vectors, with shuffles for strided reads and interleaved writes.

Strided reads go from whole vectors into buffers of one vector before the run, and strided writes go
from such buffers after it. LLVM keeps the buffers in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....codegen.loop_nest import (
    VECTORIZED,
    Local,
    Places,
    Statement,
    allocated,
    bind,
    element,
    local,
    loop,
    sequence,
    store,
)
from ....codegen.vectors import filled_with, picked, whole, widened_read, widened_store
from ....expr.build import add, const, variable
from ....expr.nodes import (
    BINARY_CLASSES,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import postorder, replace_outermost, substitute
from ....graph.stage import shape_of
from ...cost import MAX_STRIDE
from ...nest.access import Affine, Interval, affine_forms
from .elements import worth_binding

#: operators that LLVM has for vectors
_VECTOR_OPS = frozenset((*BINARY_CLASSES, "load", "var", "const", "select", "cast", "not"))
_SCALAR_OPS = frozenset(("floordiv", "floormod", "truncmod"))


@dataclass(frozen=True)
class Write:
    """The target of an element: a tensor, the residues of its position, its indices."""

    tensor: Tensor
    residues: tuple[int, ...]
    indices: tuple[Expr, ...]


@dataclass
class Run:
    """A run of `lanes` passes of the loop over `var`, from `base` on.

    Attributes
    ----------
    bases : (int, int)
        The smallest and the largest value of `base`.
    modulus : int
        The number of neighbours that one pass writes.
    """

    var: Var
    base: Var
    bases: Interval
    lanes: int
    modulus: int
    places: Places
    buffers: list[Local] = field(default_factory=list)
    before: list[Statement] = field(default_factory=list)
    inside: list[Statement] = field(default_factory=list)
    after: list[Statement] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lane = variable("lane", dtype_of(self.base))
        self._here: Mapping[Var, Expr] = {self.var: add(self.base, self.lane)}
        self._chunks: dict[object, Expr] = {}

    def statements(self, values: Sequence[Expr], writes: Sequence[Write]) -> Statement | None:
        """The run that writes the values, or None if it cannot be made of vectors."""
        names = self._named(values)
        if names is None:
            return None
        parts: dict[object, list[tuple[Write, Local]]] = {}
        for value, write in zip(values, writes, strict=True):
            scalar = substitute(replace_outermost(value, names), self._here)
            if self.modulus == 1:
                indices = [substitute(index, self._here) for index in write.indices]
                self.inside.append(self.places.write(write.tensor, scalar, indices))
                continue
            part = self._local(dtype_of(value))
            self.inside.append(store(part, scalar, [self.lane]))
            key = (tensor_key(write.tensor), write.residues[:-1])
            parts.setdefault(key, []).append((write, part))
        for group in parts.values():
            if len(group) != self.modulus:
                return None
            self._interleave(group)
        inner = loop(self.lane, self.lanes, sequence(self.inside), VECTORIZED)
        return allocated(self.buffers, sequence([*self.before, inner, *self.after]))

    def _local(self, dtype: str) -> Local:
        self.buffers.append(local(f"t{len(self.buffers)}", [self.lanes], dtype))
        return self.buffers[-1]

    def _named(self, values: Sequence[Expr]) -> dict[int, Expr] | None:
        """The replacements of reads and shared parts in the run."""
        names: dict[int, Expr] = {}
        bound = worth_binding(values)
        found = {node_id(node) for node in bound}
        for node in postorder(list(values)):
            name = op_name(node)
            if name not in _VECTOR_OPS or name in _SCALAR_OPS:
                return None
            if is_load(node) and node_id(node) not in found:
                return None
        for node in bound:
            if is_load(node):
                read = self._read(node)
                if read is None:
                    return None
                names[node_id(node)] = read
            elif dtype_of(node) != "bool":
                value = substitute(replace_outermost(node, names), self._here)
                part = self._local(dtype_of(node))
                self.inside.append(store(part, value, [self.lane]))
                names[node_id(node)] = element(part, [self.lane])
        return names

    def _read(self, node: Expr) -> Expr | None:
        """A read of the run: bound where it is of neighbours, picked from vectors otherwise."""
        indices = operands(node)
        forms = affine_forms(list(indices), [self.var])
        for index in indices[:-1]:
            if any(node_id(part) == node_id(self.var) for part in postorder(index)):
                return None
        depends = bool(indices) and any(
            node_id(part) == node_id(self.var) for part in postorder(indices[-1])
        )
        form = forms.get(node_id(indices[-1])) if depends else Affine(())
        if form is None:
            return None
        stride = form.coefficient(node_id(self.var))
        if stride in (0, 1):
            var = variable(f"v{len(self.inside)}", dtype_of(node))
            self.inside.append(bind(var, self.places.read(substitute(node, self._here))))
            return var
        return self._strided(node, stride, form.constant)

    def _strided(self, node: Expr, stride: int, offset: int) -> Expr | None:
        """``x[s*i + o] → t[lane]`` with t picked from s whole vectors inside x."""
        tensor, outer = load_tensor(node), operands(node)[:-1]
        dim = shape_of(tensor)[-1]
        if not isinstance(dim, int) or not 1 < stride <= MAX_STRIDE:
            return None
        place = (tensor_key(tensor), *map(node_id, outer), stride)
        low, high = self.bases
        inside = [
            start
            for start in range(offset, offset - stride, -1)
            if stride * low + start >= 0 and stride * (high + self.lanes) + start <= dim
        ]
        if not inside:
            return None
        start = next((s for s in inside if (*place, s) in self._chunks), inside[0])
        vectors = []
        dtype = dtype_of(self.base)
        for number in range(stride):
            at = add(self.base * const(stride, dtype), const(start + number * self.lanes, dtype))
            self._chunks.setdefault((*place, start), at)
            read = self.places.read(load(tensor, [*outer, at]))
            vectors.append(widened_read(read, self.lanes))
        part = self._local(dtype_of(node))
        numbers = [lane * stride + offset - start for lane in range(self.lanes)]
        self.before.append(filled_with(part, picked(vectors, numbers)))
        return element(part, [self.lane])

    def _interleave(self, group: Sequence[tuple[Write, Local]]) -> None:
        """``t0, t1 → x[2*base ..] = t0[0], t1[0], t0[1], ...``."""
        first = group[0][0]
        *outer, last = (substitute(index, {self.var: self.base}) for index in first.indices)
        parts = [whole(part) for _, part in group]
        zero = const(0, dtype_of(first.tensor))
        for number in range(self.modulus):
            places = range(number * self.lanes, (number + 1) * self.lanes)
            numbers = [
                place % self.modulus * self.lanes + place // self.modulus for place in places
            ]
            at = add(last, const(number * self.lanes, dtype_of(last)))
            value = picked(parts, numbers)
            plain = self.places.write(first.tensor, zero, [*outer, at])
            self.after.append(widened_store(plain, value, self.lanes))
