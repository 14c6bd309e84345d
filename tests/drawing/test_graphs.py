"""Pictures of graphs: a box for each stage, a line for each read, and nothing on top of another."""

from __future__ import annotations

import itertools
import random
import xml.etree.ElementTree as ElementTree

import pytest
from tvm import te, topi

import tvm_autodiff as ad
from tvm_autodiff.drawing.layout import BEND, GAP, layered
from tvm_autodiff.graph.graph import Graph

SVG = "{http://www.w3.org/2000/svg}"


def boxes(drawing):
    """The name of each box and what it is, with its corners."""
    found = {}
    for group in ElementTree.fromstring(drawing.svg).iter(f"{SVG}g"):
        name, kind = [text.text for text in group.iter(f"{SVG}text")]
        [rect] = group.iter(f"{SVG}rect")
        x, y, width, height = (float(rect.get(a)) for a in ("x", "y", "width", "height"))
        found[name] = (kind, (x, y, x + width, y + height), rect.get("fill"))
    return found


def lines(drawing, dashed=False):
    root = ElementTree.fromstring(drawing.svg)
    paths = [p for p in root.iter(f"{SVG}path") if " C" in p.get("d")]
    return [p for p in paths if (p.get("stroke-dasharray") is not None) == dashed]


def network():
    x, w = te.placeholder((4, 6), name="x"), te.placeholder((5, 6), name="w")
    y = topi.nn.softmax(topi.nn.dense(x, w))
    loss = topi.sum(topi.multiply(y, y))
    return loss, list(ad.differentiate(loss, [x, w]))


def test_every_stage_has_a_box_and_every_read_a_line():
    loss, gradients = network()
    graph = Graph([loss, *gradients])
    reads = {(hash(t.op), hash(op)) for op in graph.ops for t in graph.reads(op)}
    plain = ad.draw_graph([loss, *gradients])
    assert len(boxes(plain)) == len(graph.ops)
    assert len(lines(plain)) == len(reads)
    assert lines(plain, dashed=True) == []
    assert ElementTree.fromstring(plain.svg).find(f"{SVG}title").text == plain.title


def test_values_of_the_forward_pass_are_dashed():
    loss, gradients = network()
    drawing = ad.draw_graph([loss, *gradients], forward=loss)
    graph, ahead = Graph([loss, *gradients]), {hash(op) for op in Graph([loss]).ops}
    crossing = {
        (hash(t.op), hash(op))
        for op in graph.ops
        for t in graph.reads(op)
        if hash(t.op) in ahead and hash(op) not in ahead
    }
    assert len(lines(drawing, dashed=True)) == len(crossing) > 0
    fills = {name: fill for name, (_, _, fill) in boxes(drawing).items()}
    assert fills["dw"] == fills["dx"] != fills["T_softmax_exp"]
    assert fills["x"] == fills["w"] not in (fills["dw"], fills["T_softmax_exp"])


def test_the_words_of_each_kind():
    x, p = te.placeholder((4,), name="x"), te.placeholder((4,), "int32", name="p")
    k = te.reduce_axis((0, 4), "k")
    total = te.compute((), lambda: te.sum(x[k], axis=k), name="total")
    most = te.compute((), lambda: te.max(x[k], axis=k), name="most")
    placed = ad.scatter_add(x, p, (6,))
    last, _ = ad.scan(lambda s, _: (te.compute((4,), lambda i: s[i] * 0.5), None), x, length=3)
    drawing = ad.draw_graph([total, most, placed, last])
    kinds = {kind.partition(" · ")[0] for kind, _, _ in boxes(drawing).values()}
    assert {"input", "sum", "max", "scatter-add", "loop"} <= kinds


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def test_no_box_hides_another_and_lines_run_downward():
    loss, gradients = network()
    drawing = ad.draw_graph([loss, *gradients], forward=loss)
    corners = [corner for _, corner, _ in boxes(drawing).values()]
    assert not any(overlap(a, b) for a, b in itertools.combinations(corners, 2))
    assert all(x >= 0 and right <= drawing.width for x, _, right, _ in corners)
    for line in lines(drawing):
        numbers = [float(word.lstrip("MC")) for word in line.get("d").split()]
        heights = numbers[1::2]
        assert heights == sorted(heights)


@pytest.mark.parametrize("seed", range(20))
def test_layouts_of_random_graphs(seed):
    draw = random.Random(seed)
    count = draw.randint(1, 30)
    edges = [
        (a, b) for a in range(count) for b in range(a + 1, count) if draw.random() < 2.5 / count
    ]
    widths = [draw.uniform(20, 150) for _ in range(count)]
    layout = layered(widths, edges)
    assert set(layout.routes) == set(edges)
    for (start, stop), route in layout.routes.items():
        assert route[0] == (layout.centres[start], layout.layers[start])
        assert route[-1] == (layout.centres[stop], layout.layers[stop])
        depths = [layer for _, layer in route]
        assert depths == list(range(depths[0], depths[-1] + 1))
        assert len(depths) > 1
    spans = [(n, layout.layers[n], layout.centres[n], widths[n]) for n in range(count)]
    bends = {
        (layer, centre, BEND) for route in layout.routes.values() for centre, layer in route[1:-1]
    }
    for layer in range(max(layout.layers) + 1):
        row = [(centre, width) for _, at, centre, width in spans if at == layer]
        row = sorted([*row, *((centre, width) for at, centre, width in bends if at == layer)])
        for (a, wide), (b, other) in itertools.pairwise(row):
            assert b - a >= (wide + other) / 2 + GAP - 1e-6
    assert min(layout.centres[n] - widths[n] / 2 for n in range(count)) >= -1e-6


def test_edges_that_need_not_cross_do_not():
    # two chains side by side, numbered so that the first order crosses
    layout = layered([30] * 6, [(0, 3), (1, 2), (2, 5), (3, 4)])
    order = [layout.centres[a] < layout.centres[b] for a, b in ((0, 1), (3, 2), (4, 5))]
    assert len(set(order)) == 1


def test_names_with_signs_stay_readable():
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: te.if_then_else(i < 2, x[i], 0.0), name="a<b")
    drawing = ad.draw_graph(y)
    assert len(boxes(drawing)) == 2
    titles = [t.text for t in ElementTree.fromstring(drawing.svg).iter(f"{SVG}title")]
    assert any("if i < 2 then x[i] else 0.0" in title for title in titles)


def test_other_arguments_are_refused():
    with pytest.raises(ad.InvalidArgumentError, match="takes te tensors, not int"):
        ad.draw_graph([3])
