"""Determines which carries, sequences and constants of a loop take part in its reverse mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...expr.nodes import Tensor, is_float
from ...graph.graph import Graph, topological
from ...graph.kinds.loop import Loop


@dataclass(frozen=True)
class Needs:
    """The parts of a loop that take part in its reverse mode.

    Attributes
    ----------
    carries : list of int
        The carries that receive a cotangent which leads to something wanted.
    ys : list of int
        The stacked results that have a cotangent.
    xs, consts : list of int
        The sequences and constants whose cotangent is wanted and not zero.
    """

    carries: list[int]
    ys: list[int]
    xs: list[int]
    consts: list[int]


def needs_of(loop: Loop, cotangents: Mapping[int, Tensor], wanted: Sequence[bool]) -> Needs:
    """The parts that take part if some outputs, by number, have cotangents.

    `wanted` selects from ``loop.inputs``.
    """
    step, count = loop.step, len(loop.init)
    graph = Graph(list(step.outputs))
    floats = [n for n, carry in enumerate(step.carries) if is_float(carry)]
    ys = [n for n in range(len(step.ys)) if count + n in cotangents]
    arrives = {n for n in floats if n in cotangents}
    while True:
        ends = [step.news[n] for n in sorted(arrives)] + [step.ys[n] for n in ys]
        below = {hash(op) for op in topological(ends)}
        more = arrives | {n for n in floats if hash(step.carries[n].op) in below}
        if more == arrives:
            break
        arrives = more
    asked = [x for x, want in zip(step.inputs[count:], wanted[count:], strict=True) if want]
    leads = {n for n in floats if wanted[n]}
    while True:
        above = graph.depends_on([*asked, *(step.carries[n] for n in sorted(leads))])
        more = leads | {n for n in floats if hash(step.news[n].op) in above}
        if more == leads:
            break
        leads = more
    carries = sorted(arrives & leads)
    ys = [n for n in ys if hash(step.ys[n].op) in above]
    ends = [step.news[n] for n in carries] + [step.ys[n] for n in ys]
    below = {hash(op) for op in topological(ends)}
    first = count + len(loop.xs)
    used = [
        n
        for n, (x, want) in enumerate(zip(step.inputs, wanted, strict=True))
        if n >= count and want and is_float(x) and hash(x.op) in below
    ]
    return Needs(
        carries, ys, [n - count for n in used if n < first], [n - first for n in used if n >= first]
    )
