"""Writes a nest as a function: loops cut where conditions change, threads, and bodies in vectors.

Only borders have conditions. Reads are bound before they are used, so choices between them need no
branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod

from ....codegen.loop_nest import (
    PARALLEL,
    SERIAL,
    Buffer,
    Places,
    Statement,
    allocated,
    bind,
    branch,
    element,
    function,
    local,
    loop,
    sequence,
    store,
    when,
)
from ....codegen.stages.primfunc import StageFunction
from ....codegen.statements import written
from ....expr.build import add, all_of, compare, const, variable
from ....expr.nodes import (
    COMPARISONS,
    Expr,
    Tensor,
    Var,
    binary,
    dtype_of,
    is_load,
    node_id,
    op_name,
)
from ....expr.rewrite import depends_on, postorder, replace_outermost
from ....expr.sharing.lets import merge_equal
from ....expr.sharing.weights import MAX_WEIGHT, weight
from ....graph.stage import Extent
from ...cost import MAX_COPIES, MAX_NODES, MAX_PIECES, enough_tasks
from ...declined import Declined
from ...nest.nest import Loop, Nest, bordered, narrowed, split, vectorised
from .elements import without_branches, worth_binding
from .parallel import tasks
from .strip_mining import strip_start
from .vector_body import vector_body

#: why a body is not written in vectors
_MOST_EXPRESSIONS = MAX_PIECES * MAX_NODES
_TOO_MANY = Declined(f"its code would have more than {_MOST_EXPRESSIONS} expressions")
_TOO_LARGE = Declined(f"a statement of it would have more than {MAX_WEIGHT} nodes")


def nest_function(
    nests: Sequence[Nest],
    results: Sequence[Tensor],
    threads: int,
    *,
    strict: bool = False,
    costly: bool = False,
) -> StageFunction | Declined:
    """The function that computes a nest, where it is not too large.

    Parameters
    ----------
    nests : sequence of Nest
        The same nest in ways that need longer and longer symbolic loops: a call takes the last one
        all of whose strips and vectors fit.
    results : sequence of Tensor
        What they write.
    threads : int
        The threads that share the outer loops.
    strict : bool
        Whether to decline where a loop has no vectors, instead of single elements.
    costly : bool
        Whether the body takes so long that elements that lie apart are read one by one for its
        vectors; declined where no loop has any: branches would be computed for nothing.
    """
    inputs = nests[0].reads()
    tensors = [*inputs, *results]
    if any(dtype_of(tensor) == "bfloat16" for tensor in tensors):
        # TVM makes integers of bfloat16, but not of variables that are bound to it
        return Declined("TVM cannot bind variables of bfloat16")
    places, buffers = Places.of(tensors)
    body, nodes, once = sequence([]), 0, True
    for number, nest in enumerate(nests):
        writer = _Writer(nest, places, strict or number > 0, costly, _MOST_EXPRESSIONS - nodes)
        made = writer.statement(threads)
        if costly and number + 1 == len(nests) and not writer.has_vectors:
            return writer.declined
        if isinstance(made, Declined):
            if strict or not number:
                return made
            continue
        nodes += writer.nodes
        body = branch(_fits(nest), made, body) if number else made
        once = once and writer.once
    return StageFunction(function(buffers, body, once), tuple(inputs), tuple(results))


def in_vectors(nest: Nest, lanes: int, least: int) -> list[Nest]:
    """Ways to run a nest, its last loop in vectors, that need longer and longer symbolic loops:
    these are cut at borders, so that a remainder by a symbolic size is gone between them.

    Parameters
    ----------
    nest : Nest
    lanes : int
        Of a vector.
    least : int
        The fewest lanes of the vectors of a symbolic loop that is too short for whole ones.
    """
    last = len(nest.loops) - 1
    cut = reduce(bordered, range(len(nest.loops)), nest)
    if last < 0:
        return [nest]
    if isinstance(nest.loops[last].extent, int):
        ways = [nest] if cut == nest else [nest, cut]
        return [vectorised(way, last, lanes) for way in ways]
    widths = dict.fromkeys((min(least, lanes), lanes))
    return [nest, *(vectorised(cut, last, width) for width in widths)]


def inner_loops(
    nest: Nest, outer: int, places: Places
) -> tuple[list[Var], Statement] | Declined:
    """The loops of a nest but for the `outer` ones, in vectors, for any turn of these.

    Parameters
    ----------
    nest : Nest
    outer : int
        How many leading loops are left out.
    places : Places
        The buffers of what is read and stored.

    Returns
    -------
    list of Var
        What stands for the variables of the outer loops.
    Statement
    """
    given = [replace(_renewed(one), lanes=1) for one in nest.loops[:outer]]

    def inside(here: Nest, place: int) -> Statement | Declined:
        """The loops inside of given ones, by the pieces that the variables of these lie in."""
        if place == outer:
            return _Writer(here, places, True, False).within(outer)
        var, whole = given[place].var, None
        for piece in reversed(_ended(here, place)):
            one = replace(piece, var=var, lanes=1)
            part = narrowed(here, [*here.loops[:place], one, *here.loops[place + 1 :]])
            if one.extent == 1:
                part = replace(part, stores=part.at({var: const(one.low, dtype_of(var))}))
            inner = inside(part, place + 1)
            if isinstance(inner, Declined):
                return inner
            if whole is not None:
                end = const(piece.low + int(piece.extent), dtype_of(var))
                inner = branch(compare("lt", var, end), inner, whole)
            whole = inner
        return sequence([]) if whole is None else whole

    made = inside(nest, 0)
    return made if isinstance(made, Declined) else ([one.var for one in given], made)


def _ended(nest: Nest, place: int) -> list[Loop]:
    """The pieces of a loop, the last of them of one turn where a border crosses other loops: for
    tiles that go beyond an end.
    """
    found, var = split(nest, place), nest.loops[place].var
    last = found[-1]
    crosses = any(
        op_name(node) in COMPARISONS and depends_on(node, [var])
        for node in postorder(nest.values)
    )
    if crosses and last.turns is not None and last.turns > 1:
        end = last.low + last.turns - 1
        found[-1:] = [replace(last, extent=last.turns - 1), replace(last, low=end, extent=1)]
    return found


def _fits(nest: Nest) -> Expr:
    """Whether each loop is as long as its borders and one of its turns."""
    symbolic = [
        (one.extent, sum(one.borders) + one.width)
        for one in nest.loops
        if not isinstance(one.extent, int)
    ]
    return all_of(
        compare("ge", extent, const(least, dtype_of(extent)))
        for extent, least in symbolic
        if least > 1
    )


class _Writer:
    """Writes a nest.

    `nodes` counts what was written, at most `most`, `once` is whether each element is stored once,
    `has_vectors` whether a loop has vectors, and `declined` why the last one that has none has
    none.
    """

    def __init__(
        self,
        nest: Nest,
        places: Places,
        strict: bool,
        gathers: bool,
        most: int = _MOST_EXPRESSIONS,
    ) -> None:
        self._nest, self._places, self._strict, self._gathers = nest, places, strict, gathers
        self._most = most
        self._pieces = [split(nest, place) for place in range(len(nest.loops))]
        for place, one in enumerate(nest.loops):
            # around the others, and vectors, a quotient is computed seldom
            if prod(map(len, self._pieces)) > MAX_COPIES and one.lanes == 1:
                self._pieces[place] = split(nest, place, quotients=False)
        self.declined = Declined("its loop has no vectors")
        self.once = not any(one.overlaps for found in self._pieces for one in found)
        self.nodes, self.has_vectors, self._full = 0, False, False

    def statement(self, threads: int) -> Statement | Declined:
        """The loops. Threads share leading ones that are not cut, or else the first that has turns.
        """
        shared = self._shared(threads)
        for lanes in (True,) if self._strict else (True, False):
            chosen = [_renewed(one if lanes else replace(one, lanes=1)) for one in shared]
            kind = PARALLEL if threads > 1 and not chosen else SERIAL
            made = self._loops(len(chosen), chosen, kind)
            if made is not None and chosen:
                counts = [_turns(one) for one in chosen]
                turns = [_turn(one) for one in chosen]
                begins = [begin for _, begin in turns if begin is not None]
                loops = [(var, count) for (var, _), count in zip(turns, counts, strict=True)]
                return tasks(loops, sequence([*begins, made]))
            if made is not None:
                return made
        return self.declined

    def within(self, outer: int) -> Statement | Declined:
        """The loops from a place on, for one turn of those before."""
        made = self._loops(outer, list(self._nest.loops[:outer]), SERIAL)
        return self.declined if made is None else made

    def _shared(self, threads: int) -> list[Loop]:
        """The leading loops whose turns are tasks. The innermost one is among them only where the
        others are too few: its number is divided for each task.
        """
        chosen: list[Loop] = []
        total = 1
        places = [n for n, one in enumerate(self._pieces) if len(one) != 1 or one[0].turns != 1]
        for place, found in enumerate(self._pieces if threads > 1 else ()):
            occupied = total >= threads and place == places[-1]
            if len(found) != 1 or enough_tasks(total, threads) or occupied:
                break
            chosen.append(found[0])
            total *= found[0].turns or 1  # a symbolic extent may be 1
        return chosen if len([one for one in chosen if one.turns != 1]) > 1 else []

    def _loops(self, place: int, chosen: list[Loop], kind: object) -> Statement | None:
        """The loops from a place on, within a piece of each outer loop; None if a loop of these has
        no vectors.
        """
        if place == len(self._pieces):
            return self._body(chosen)
        statements = []
        for piece in self._pieces[place]:
            whole = piece.turns == 1 and len(self._pieces[place]) == 1
            inner_kind = kind if whole else SERIAL
            strict = self._strict and not any(one.is_border for one in (*chosen, piece))
            for lanes in (piece.lanes,) if strict else dict.fromkeys((piece.lanes, 1)):
                one = _renewed(replace(piece, lanes=lanes))
                inner = self._loops(place + 1, [*chosen, one], inner_kind)
                if inner is not None:
                    break
            else:
                return None
            var, begin = _turn(one)
            inside = inner if begin is None else sequence([begin, inner])
            low = one.low if begin is None else 0
            # a few elements are no work for threads
            own = SERIAL if piece.is_border else kind
            turns = loop(var, _turns(one), inside, own, low)
            statements.append(turns if one.when is None else when(one.when, turns))
        return sequence(statements)

    def _body(self, loops: Sequence[Loop]) -> Statement | None:
        """The stores of one turn, in vectors where a loop has lanes."""
        if self._full:
            return None
        nest = narrowed(self._nest, loops)
        known = nest.known
        values = merge_equal(without_branches(nest.values, known))
        nest = nest.with_values(values)
        size = len(postorder(values))
        if self.nodes + size > self._most:
            self.declined, self._full = _TOO_MANY, True
            return None
        bound = worth_binding(values)
        large = weight(values, bound) > MAX_WEIGHT
        lanes = [one for one in loops if one.lanes > 1]
        if lanes:
            made = _TOO_LARGE
            if not large:
                made = vector_body(nest, lanes[0], self._places, bound, self._gathers)
            if isinstance(made, Declined):
                self.declined = made
                return None
            self.has_vectors = True
        else:
            made = self._in_statements(nest) if large else self._elements(nest, bound)
        self.nodes += size
        return made

    def _elements(self, nest: Nest, bound: Sequence[Expr]) -> Statement:
        """The stores one by one, after what is bound."""
        statements, values, buffers = self._bound(nest.values, bound)
        stores = [
            self._places.write(one.tensor, self._places.read(value), one.indices)
            for one, value in zip(nest.stores, values, strict=True)
        ]
        return allocated(buffers, sequence([*statements, *stores]))

    def _in_statements(self, nest: Nest) -> Statement:
        """The stores one by one, after statements of bounded size."""
        buffers, statements, values = written(nest.values, self._places)
        stores = [
            self._places.write(one.tensor, value, one.indices)
            for one, value in zip(nest.stores, values, strict=True)
        ]
        return allocated(buffers, sequence([*statements, *stores]))

    def _bound(
        self, values: Sequence[Expr], bound: Sequence[Expr]
    ) -> tuple[list[Statement], list[Expr], list[Buffer]]:
        """``f(x[i]) → v = x[i]; f(v)`` for reads that no branch guards, and for shared parts.

        TVM inlines the value of a variable into its uses unless it is a read. Other shared values
        go through a buffer of one element, which LLVM turns into a register.
        """
        statements: list[Statement] = []
        buffers: list[Buffer] = []
        names: dict[int, Expr] = {}
        for node in bound:
            value = self._places.read(replace_outermost(node, names))
            if not is_load(node):
                buffers.append(local(f"t{len(names)}", [], dtype_of(node)))
                statements.append(store(buffers[-1], value, []))
                value = element(buffers[-1], [])
            var = variable(f"v{len(names)}", dtype_of(node))
            statements.append(bind(var, value))
            names[node_id(node)] = var
        return statements, [replace_outermost(value, names) for value in values], buffers


def _renewed(one: Loop) -> Loop:
    return replace(one, var=variable(one.var.name, dtype_of(one.var)))


def _turns(one: Loop) -> Extent:
    """The number of turns of a loop."""
    if one.turns is not None:
        return one.turns
    dtype, width = dtype_of(one.var), one.width
    if width == 1:
        return one.extent
    return binary("floordiv", add(one.extent, const(width - 1, dtype)), const(width, dtype))


def _turn(one: Loop) -> tuple[Var, Statement | None]:
    """What counts the turns of a loop, and what binds its variable if that is another."""
    if one.width == 1:
        return one.var, None
    number = variable(f"{one.var.name}_turn", dtype_of(one.var))
    low = one.low if isinstance(one.extent, int) else const(one.low, dtype_of(one.extent))
    end = low + one.extent
    return number, bind(one.var, strip_start(number, one.width, end, one.low))
