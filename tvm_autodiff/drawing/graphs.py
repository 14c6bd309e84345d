"""Pictures of computations: a box for each stage, and a line for each tensor that a stage reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import InvalidArgumentError
from ..expr.nodes import Tensor, is_tensor, op_name
from ..expr.printing.names import Names
from ..expr.printing.reducer_signs import sign_of
from ..expr.printing.text import Printer
from ..graph.graph import Graph, topological
from ..graph.kinds.custom import Custom
from ..graph.kinds.kind import Compute, Input, Kind, Opaque, kind_of
from ..graph.kinds.loop import Loop
from ..graph.kinds.prefix_scan import Scan
from ..graph.kinds.rewind import KeptLoop, Rewind
from ..graph.kinds.rules.table import rules_of
from ..graph.kinds.scatter_add import ScatterAdd
from ..graph.kinds.update_loops import UpdateLoops
from ..graph.stage import Operation, bodies, is_placeholder, outputs_of
from ..keywords import checked_keywords
from .layout import layered
from .svg import INK, MUTED, PAPER, Canvas, Drawing, shortened, width_of

#: what a stage is, apart from `te.compute`, whose words depend on its body
WORDS: dict[type, str] = {
    Input: "input",
    Scan: "prefix scan",
    ScatterAdd: "scatter-add",
    UpdateLoops: "scatter-add, computed updates",
    Loop: "loop",
    KeptLoop: "loop that keeps states",
    Rewind: "loop, backward",
    Custom: "custom derivative",
    Opaque: "extern",
}
_SIGNS = {"Σ": "sum", "Π": "product"}
#: fill and border
INPUT, FORWARD, BACKWARD = (PAPER, MUTED), ("#e7f5ff", "#1971c2"), ("#fff4e6", "#d9480f")
LEGEND = {"input": INPUT, "forward pass": FORWARD, "backward pass": BACKWARD}
_SIZE, _HEIGHT, _SPACE, _MARGIN = 13.0, 42.0, 34.0, 14.0
_NAME, _TIP = 36, 400


@checked_keywords
def draw_graph(
    tensors: Tensor | Sequence[Tensor], forward: Tensor | Sequence[Tensor] | None = None
) -> Drawing:
    """Draw the stages that tensors need, and which stage reads which.

    A box has the name of a stage, what it computes (a sum, an elementwise function, a loop), its
    dtype and its shape. The expression appears while the pointer is over the box. Lines run
    downward, from a tensor to the stages that read it.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        The results of the computation, such as a loss and its gradients.
    forward : Tensor or sequence of Tensor, optional
        Results of the forward pass. The stages that they need get another colour than the rest,
        and a dashed line is a value of the forward pass that the backward pass reads.

    Returns
    -------
    Drawing
        The picture, which a notebook displays.

    Raises
    ------
    InvalidArgumentError
        If an argument is not a tensor.

    Examples
    --------
    >>> from tvm import te
    >>> import tvm_autodiff as ad
    >>> x, head = te.placeholder((4,), name="x"), te.placeholder((4,), name="head")
    >>> y = te.compute((4,), lambda i: te.exp(x[i]), name="y")
    >>> drawing = draw_graph(ad.differentiate(y, [x], head)[0], forward=y)
    >>> drawing.title
    'Graph of dx'
    >>> drawing.svg.count("<g>")  # x, head, y and dx
    4
    """
    results, ahead = _listed(tensors), [] if forward is None else _listed(forward)
    graph = Graph([*results, *ahead] if ahead else results)
    names = Names()
    for op in sorted(graph.ops, key=lambda op: not is_placeholder(op)):
        for tensor in outputs_of(op):
            Printer(names).tensor(tensor)
    labels = [_label(op, names) for op in graph.ops]
    widths = [max(width_of(name, _SIZE), width_of(kind, 11)) + 20 for name, kind, _ in labels]
    edges = [
        (graph.place(hash(tensor.op)), place)
        for place, op in enumerate(graph.ops)
        for tensor in graph.reads(op)
    ]
    layout = layered(widths, edges)
    first = {hash(op) for op in topological(ahead)}
    in_forward = [not ahead or is_placeholder(op) or hash(op) in first for op in graph.ops]

    canvas = Canvas()
    for (start, stop), route in layout.routes.items():
        crosses = bool(ahead) and in_forward[start] and not in_forward[stop]
        canvas.curve(_points(route), BACKWARD[1] if crosses else MUTED, "5 3" if crosses else "")
    for place, op in enumerate(graph.ops):
        name, kind, tip = labels[place]
        fill, border = INPUT if is_placeholder(op) else FORWARD if in_forward[place] else BACKWARD
        x, y = layout.centres[place] + _MARGIN, _top(layout.layers[place])
        width, shapes = widths[place], Canvas()
        shapes.box(x - width / 2, y, width, _HEIGHT, fill, border)
        shapes.text(x, y + 17, name, _SIZE, colour=INK, bold=True)
        shapes.text(x, y + 33, kind, 11, colour=INK)
        canvas.group(tip, shapes.parts)
        canvas.reach(x + width / 2, y + _HEIGHT)
    if ahead:
        _legend(canvas)
    return canvas.drawing(f"Graph of {', '.join(_names_of(results, names))}")


def _names_of(tensors: Iterable[Tensor], names: Names) -> list[str]:
    """The names of tensors as the picture has them."""
    return [Printer(names).tensor(tensor) for tensor in tensors]


def _listed(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """The tensors as a list."""
    given = list(tensors) if isinstance(tensors, Iterable) and not is_tensor(tensors) else [tensors]
    for tensor in given:
        if not is_tensor(tensor):
            raise InvalidArgumentError(
                f"draw_graph() takes te tensors, not {type(tensor).__name__}: pass what "
                "te.compute, te.placeholder or differentiate returned"
            )
    return given


def _label(op: Operation, names: Names) -> tuple[str, str, str]:
    """The name of a stage, what it is, and its expression."""
    kind, printer = kind_of(op), Printer(names, names.inner(), _TIP)
    outputs = outputs_of(op)
    name = ", ".join(_names_of(outputs, names))
    shape = ", ".join(printer(extent) for extent in outputs[0].shape)
    is_of = f"{outputs[0].dtype}[{shape}]" if shape else str(outputs[0].dtype)
    word = _word(op, kind)
    tip = f"{name}: {is_of}" if is_placeholder(op) else rules_of(op)[1].text(op, kind, printer)
    return shortened(name, _NAME), f"{word} · {is_of}", tip


def _word(op: Operation, kind: Kind) -> str:
    """What a stage is, in one or two words."""
    if not isinstance(kind, Compute):
        return WORDS[type(kind)]
    body = bodies(op)[0]
    if op_name(body) != "reduce":
        return "elementwise"
    sign = sign_of(body.combiner)
    return _SIGNS.get(sign, sign) if sign else "reduction"


def _points(route: Sequence[tuple[float, int]]) -> list[tuple[float, float]]:
    """The points of an edge: below its first box, along the layers that it passes, above its last.
    """
    (first, start), *passed, (last, stop) = route
    points = [(first + _MARGIN, _top(start) + _HEIGHT)]
    for centre, layer in passed:
        points += [(centre + _MARGIN, _top(layer)), (centre + _MARGIN, _top(layer) + _HEIGHT)]
    return [*points, (last + _MARGIN, _top(stop))]


def _top(layer: int) -> float:
    """The upper side of the boxes of a layer."""
    return _MARGIN + layer * (_HEIGHT + _SPACE)


def _legend(canvas: Canvas) -> None:
    """What the colours and the dashes are, below the picture."""
    x, y = _MARGIN, canvas.height + 30
    for word, (fill, border) in LEGEND.items():
        canvas.box(x, y - 10, 16, 12, fill, border, 2)
        canvas.text(x + 22, y, word, 12, "start")
        x += 34 + width_of(word, 12)
    canvas.line((x, y - 4), (x + 24, y - 4), BACKWARD[1], "5 3")
    canvas.text(x + 30, y, "value of the forward pass, read again", 12, "start")
