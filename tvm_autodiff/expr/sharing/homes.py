"""Chooses where shared parts of expressions are computed: in the outermost branches that certainly
need them.

A read, or a division by a possible zero, must stay behind its guards. It is placed once in each
sibling branch that needs it, and outside a branch whose two sides both need it. A part with too
many places gets its own guard: ``(if c then f(v)) + (if d then g(v))`` becomes the same expression
over ``v' = (if c or d then v else 0)``. All other parts may be computed before all of their uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..build import all_of, any_of, const, if_then_else, negate, zero_like
from ..nodes import Expr, node_id, op_name, operands, with_operands
from ..rewrite import contains, postorder
from .failing import Failing, Fails, Path, can_fail

#: node → operands that it may leave without evaluating them
BRANCHES: Mapping[str, tuple[int, ...]] = {"if_then_else": (1, 2)}
#: the same before the normal form, where a guard may also be a select or a conjunction
GUARDS: Mapping[str, tuple[int, ...]] = {
    **BRANCHES,
    "select": (1, 2),
    "and": (1,),
    "or": (1,),
}

MOST_HOMES = 4  #: of a part that is not small
_SMALL = 32  #: nodes, as a tree, that may be written in any number of branches
#: replacements of an operand: behind a separate guard; repeated at each use
_GUARDED, _ALONE = 0, -1


@dataclass(frozen=True)
class Homes:
    """The branches in which each part of some expressions is computed.

    Attributes
    ----------
    roots, order : list of Expr
        The expressions, some parts of which may have been guarded, and all nodes in postorder.
    """

    roots: list[Expr]
    order: list[Expr]
    _homes: Mapping[int, list[Path]]
    _alone: frozenset[int]
    _branches: Mapping[str, tuple[int, ...]]

    def of(self, node: Expr) -> list[Path]:
        """The branches in which a part is computed, once each."""
        return self._homes[node_id(node)]

    def seen_from(self, node: Expr, path: Path) -> Path:
        """The home whose value is used inside a branch."""
        return next(home for home in self.of(node) if path[: len(home)] == home)

    def inside(self, node: Expr, home: Path, place: int) -> Path:
        """The branch of an operand of a part that is computed at `home`."""
        key = node_id(node)
        alone = ((key, _ALONE),) if key in self._alone else ()
        return (*home, *alone, *_entry(node, place, self._branches))

    def uses(self) -> dict[tuple[int, Path], int]:
        """How often the value computed at a home is used."""
        found: dict[tuple[int, Path], int] = {}
        everywhere: list[tuple[Expr, Path]] = [(root, ()) for root in self.roots]
        for node in self.order:
            for home in self.of(node):
                for place, part in enumerate(operands(node)):
                    everywhere.append((part, self.inside(node, home, place)))
        for part, path in everywhere:
            key = node_id(part), self.seen_from(part, path)
            found[key] = found.get(key, 0) + 1
        return found


def homes_of(
    roots: Sequence[Expr],
    branches: Mapping[str, tuple[int, ...]],
    can_be_stored: Callable[[Expr], bool] = lambda node: True,
    fails: Fails = can_fail,
) -> Homes:
    """The homes of all parts of expressions.

    Parameters
    ----------
    roots : sequence of Expr
        Expressions without lets in which equal parts are one node (`lets.merge_equal`).
    branches : mapping
        `BRANCHES` or `GUARDS`.
    can_be_stored : callable
        Whether a part may be computed before its uses. A large part that may not be, and that has
        more than `MOST_HOMES` homes, is repeated at each use.
    fails : callable
        Whether a node must stay behind its guards.
    """
    first = _Placed(roots, branches, can_be_stored, fails)
    if not first.guards:
        return first.homes(roots)
    new, guarded = _with_guards(first.order, first.guards)
    changed = [new[node_id(root)] for root in roots]
    return _Placed(changed, branches, can_be_stored, fails, guarded).homes(changed)


class _Placed:
    """One pass over all nodes, users first."""

    def __init__(
        self,
        roots: Sequence[Expr],
        branches: Mapping[str, tuple[int, ...]],
        can_be_stored: Callable[[Expr], bool],
        fails: Fails,
        guarded: frozenset[int] | None = None,
    ) -> None:
        self.order = postorder(list(roots))
        self.guards: dict[int, Expr] = {}
        self._branches = branches
        self._nodes = {node_id(node): node for node in self.order}
        #: where what is written at each use is needed, and from how many branches in
        self._alone: dict[int, tuple[list[Path], int]] = {}
        self._homes: dict[int, list[Path]] = {}
        failing = Failing(roots, self.order, branches, fails=fails)
        small = _small(self.order)
        paths: dict[int, list[Path]] = {node_id(root): [()] for root in roots}
        for node in reversed(self.order):
            key = node_id(node)
            own: list[Path] = [_common(paths[key])]
            inner: Path = ()
            unsafe = not failing.is_safe(node, own[0])
            if unsafe and key not in (guarded or ()):
                needed = _reduced(paths[key])
                if len(needed) <= MOST_HOMES or key in small:
                    own = needed
                elif not can_be_stored(node):
                    inner = ((key, _ALONE),)
                    self._alone[key] = needed, len(own[0])
                elif guarded is None:
                    inner = ((key, _GUARDED),)
                    self.guards[key] = self._reached_by(needed, len(own[0]))
                else:  # in guards
                    own = needed
            self._homes[key] = own
            for place, part in enumerate(operands(node)):
                entry = (*inner, *_entry(node, place, branches))
                paths.setdefault(node_id(part), []).extend((*path, *entry) for path in own)

    def homes(self, roots: Sequence[Expr]) -> Homes:
        alone = frozenset(self._alone)
        return Homes(list(roots), self.order, self._homes, alone, self._branches)

    def _reached_by(self, paths: Sequence[Path], depth: int) -> Expr:
        """The condition under which one of several paths is taken, seen from `depth` branches in.
        """
        return any_of([self._taken(path[depth:]) for path in paths])

    def _taken(self, path: Path) -> Expr:
        whole: Expr | None = None
        for key, place in reversed(path):
            condition = self._condition(key, place)
            if whole is None:
                whole = condition
            elif contains(whole, can_fail):  # `and` evaluates both sides
                whole = if_then_else(condition, whole, const(0, "bool"))
            else:
                whole = all_of([condition, whole])
        assert whole is not None
        return whole

    def _condition(self, key: int, place: int) -> Expr:
        if place == _GUARDED:
            return self.guards[key]
        if place == _ALONE:
            return self._reached_by(*self._alone[key])
        node = self._nodes[key]
        first = operands(node)[0]
        return negate(first) if place == 2 or op_name(node) == "or" else first


def _with_guards(
    order: Sequence[Expr], guards: Mapping[int, Expr]
) -> tuple[dict[int, Expr], frozenset[int]]:
    """``v → if guard then v else 0`` in all uses but those in guards, and the new nodes."""
    new: dict[int, Expr] = {}
    made: set[int] = set()
    for node in order:
        key, old = node_id(node), operands(node)
        parts = [new[node_id(part)] for part in old]
        same = all(node_id(a) == node_id(b) for a, b in zip(old, parts, strict=True))
        new[key] = node if same else with_operands(node, parts)
        if key in guards:
            new[key] = if_then_else(guards[key], new[key], zero_like(node))
            made.add(node_id(new[key]))
    return new, frozenset(made)


def _entry(node: Expr, place: int, branches: Mapping[str, tuple[int, ...]]) -> Path:
    return ((node_id(node), place),) if place in branches.get(op_name(node), ()) else ()


def _small(order: Sequence[Expr]) -> set[int]:
    """Ids of the nodes that are small when nothing is shared."""
    sizes: dict[int, int] = {}
    for node in order:
        size = 1 + sum(sizes[node_id(part)] for part in operands(node))
        sizes[node_id(node)] = min(size, _SMALL + 1)
    return {key for key, size in sizes.items() if size <= _SMALL}


def _reduced(paths: Iterable[Path]) -> list[Path]:
    """Paths that no other one holds; both sides of a branch are the branch."""
    found = dict.fromkeys(paths)
    if len(found) == 1:
        return list(found)
    by_length: dict[int, list[Path]] = {}
    for path in found:
        by_length.setdefault(len(path), []).append(path)
    for length in range(max(by_length), 0, -1):  # what is joined is shorter
        for path in by_length.get(length, []):
            *outer, (key, side) = path
            other = (*outer, (key, 3 - side))
            if path in found and other in found:
                del found[path], found[other]
                whole = tuple(outer)
                if whole not in found:
                    found[whole] = None
                    by_length.setdefault(length - 1, []).append(whole)
    return [p for p in found if not any(p[:n] in found for n in range(len(p)))]


def _common(paths: Sequence[Path]) -> Path:
    first, *others = paths
    length = len(first)
    for path in others:
        while path[:length] != first[:length]:
            length -= 1
    return first[:length]
