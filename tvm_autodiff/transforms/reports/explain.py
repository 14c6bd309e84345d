"""Explains gradients as text: the system of each read site, the strategy, and remaining guards.

It also writes the warnings about sums that stayed dense. Nothing here changes a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...errors import DenseSumWarning
from ...expr.build import all_of
from ...expr.nodes import Axis, Tensor, load
from ...expr.printing.text import text
from ...graph.loop_plans import LoopPlan, loops_back, plan_of
from ...graph.stage import Extent, Operation, axis_range, is_compute, reduction_of, shape_of
from ...rules.reductions.reducers import classify
from ...warn import warn
from ...zero_elimination.transposition.transpose import Transposed
from .report import Report, Row, report
from .work import work_of


def warn_of_dense_sums(sites: Sequence[Transposed]) -> None:
    """Warn of gradients that sum over zeros, with the reason and the alternative."""
    for site in sites:
        if not site.sum.dense:
            continue
        stage, tensor = site.op.name, site.term.tensor.op.name
        warn(
            f"the gradient of stage {stage} with respect to {tensor} sums over zeros: the solver "
            f"leaves {text(all_of(site.sum.dense), limit=200)} as a guard. The result is correct "
            f"but slow; manual={{({stage}, {tensor}): f}} replaces it",
            DenseSumWarning,
        )


def explain(
    sites: Sequence[Transposed],
    scanned: Sequence[tuple[Operation, Tensor]] = (),
    results: Sequence[Tensor] = (),
) -> Report:
    """The report: one paragraph for each gradient and each stage that contributes to it.

    `scanned` holds the differentiated scans and what each of them reads. `results` are the
    gradients, whose reverse loops are described.
    """
    lines: list[str] = []
    heading = ""
    for site in sites:
        title = f"d{site.term.tensor.op.name} from {site.op.name}"
        if title != heading:
            lines += ["", title] if lines else [title]
            heading = title
        lines += [f"  {line}" for line in _site_lines(site)]
    for op, tensor in scanned:
        steps = _count(shape_of(op.output(0)))
        title = f"d{tensor.op.name} from {op.name}"
        lines += ["", title] if lines else [title]
        lines += ["  strategy: scan in the opposite direction", f"  iterations: {steps}"]
    for op, rewind in loops_back(results):
        title = f"backward loop {op.name}"
        lines += ["", title] if lines else [title]
        lines += [f"  {line}" for line in _loop_lines(plan_of(op, rewind))]
    return report("\n".join(lines), [_row(site) for site in sites])


def _row(site: Transposed) -> Row:
    term, work = site.term, work_of(site)
    name = term.tensor.op.name
    read = text(load(term.tensor, term.indices), limit=80) if term.indices else name
    return Row(
        f"d{name} from {site.op.name}",
        read,
        site.strategy,
        work.own,
        work.floor,
        bool(site.sum.dense),
    )


def _loop_lines(plan: LoopPlan) -> list[str]:
    lines = [f"states kept at a time: {plan.states:,}"]
    if plan.state_bytes is not None:
        lines[0] += f" of {plan.state_bytes:,} bytes each, {plan.bytes:,} bytes"
    if plan.length is not None:
        lines.append(
            f"recomputed steps: {plan.extra_steps:,} beside {plan.length:,} backward steps, the "
            "minimum for these states"
        )
    return lines


def _site_lines(site: Transposed) -> list[str]:
    term, found = site.term, site.sum
    target = [axis.var for axis in site.target.axes]
    read = text(load(term.tensor, term.indices)) if term.indices else term.tensor.op.name
    pairs = zip(term.indices, target, strict=True)
    system = [f"{text(index)} = {axis.name}" for index, axis in pairs]
    system += [text(condition.expr) for condition in term.conditions]
    lines = [f"reads {read}", f"  system: {', '.join(system) or 'none'}"]
    lines.append(f"  strategy: {site.strategy}")
    if found.axes:
        lines.append(f"  sums over: {', '.join(map(_range_text, found.axes))}")
    if found.guards:
        lines.append(f"  guards: {text(all_of(found.guards))}")
    lines.append(f"  iterations: {_work(site)}")
    if _by_scans(site):
        elements = _count([axis_range(axis)[1] for axis in (*site.op.axis, *term.reduce_axes)])
        lines.append(
            f"  reducer: two scans combine what is before and after, {elements} steps each"
        )
    if found.dense:
        lines += [
            f"  not solved: {text(all_of(found.dense))}",
            f"  to replace it: manual={{({site.op.name}, {term.tensor.op.name}): f}}",
        ]
    return lines


def _range_text(axis: Axis) -> str:
    extent = axis_range(axis)[1]
    return f"{axis.var.name} < {extent if isinstance(extent, int) else text(extent)}"


def _work(site: Transposed) -> str:
    """The iterations, the lower bound, and the iterations of the dense sum."""
    work = work_of(site)
    own, floor, dense = (
        "symbolic" if count is None else str(count) for count in (work.own, work.floor, work.dense)
    )
    return f"{own} (lower bound: {floor}, the sum over zeros: {dense})"


def _by_scans(site: Transposed) -> bool:
    """Whether the stage reduces by a combiner without a special rule."""
    reduction = reduction_of(site.op) if is_compute(site.op) else None
    return reduction is not None and (
        classify(reduction.combiner, site.term.component) == "general"
    )


def _count(extents: Sequence[Extent]) -> str:
    known = all(isinstance(extent, int) for extent in extents)
    return str(prod(extents)) if known else "symbolic"
