"""Pictures of domains: as many points as the domain has, and the numbers that count them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.domain import Domain

SVG = "{http://www.w3.org/2000/svg}"
i, j, k, n = te.var("i"), te.var("j"), te.var("k"), te.var("n")


def dots(drawing):
    """The number of points, and of filled ones."""
    circles = [e for e in ElementTree.fromstring(drawing.svg).iter() if e.tag == f"{SVG}circle"]
    return len(circles), sum(circle.get("fill") != "none" for circle in circles)


def texts(drawing):
    return [e.text for e in ElementTree.fromstring(drawing.svg).iter() if e.tag == f"{SVG}text"]


def strided(stride, taps, outputs):
    ranges = {i: (0, outputs), k: (0, taps), j: (0, stride * (outputs - 1) + taps)}
    return Domain((i, k), ranges, ((stride * i + k).equal(j),))


@pytest.mark.parametrize(("stride", "taps", "place"), [(1, 3, 4), (2, 3, 6), (2, 5, 7), (3, 2, 5)])
def test_filled_points_satisfy_the_conditions(stride, taps, place):
    drawing = ad.draw_domain(strided(stride, taps, 6), {j: place})
    wanted = sum(stride * a + b == place for a in range(6) for b in range(taps))
    assert dots(drawing) == (6 * taps, wanted)
    assert f"{6 * taps} iterations, {wanted} needed" in texts(drawing)


def test_the_second_variable_runs_upward():
    drawing = ad.draw_domain(Domain((i, k), {i: (0, 4), k: (0, 3)}, (i.equal(3), k.equal(2))))
    circles = [e for e in ElementTree.fromstring(drawing.svg).iter() if e.tag == f"{SVG}circle"]
    [filled] = [c for c in circles if c.get("fill") != "none"]
    assert float(filled.get("cx")) == max(float(c.get("cx")) for c in circles)
    assert float(filled.get("cy")) == min(float(c.get("cy")) for c in circles)


def test_each_case_is_a_row_and_the_solver_keeps_the_points():
    domain = strided(2, 4, 6)
    drawing = ad.draw_domain(domain, [{j: 4}, {j: 5}, {j: 0}], solved=True)
    counts = [sum(1 for _ in domain.points({j: place})) for place in (4, 5, 0)]
    assert dots(drawing)[1] == 2 * sum(counts)
    assert [t for t in texts(drawing) if t.startswith("2*i") or t.startswith("i*2")] != []
    assert "after the solver" in texts(drawing)


def test_a_domain_of_one_point_and_an_empty_one():
    assert dots(ad.draw_domain(Domain((i,), {i: (5, 1)}))) == (1, 1)
    both = ad.draw_domain(Domain((i,), {i: (0, 9)}, (i.equal(4),)), solved=True)
    assert dots(both) == (9 + 1, 2)  # nothing is left to choose: one point
    assert dots(ad.draw_domain(Domain((i,), {i: (0, 0)}))) == (0, 0)
    assert dots(ad.draw_domain(Domain((i,), {i: (0, 3)}, (i > 8,)), solved=True))[1] == 0


def test_negative_ranges_and_symbolic_extents_are_labelled():
    drawing = ad.draw_domain(Domain((i,), {i: (-2, n)}, (i < 1,)), {n: 4})
    assert dots(drawing) == (4, 3)
    assert {"-2", "-1", "0", "1"} <= set(texts(drawing))


def test_signs_are_escaped():
    drawing = ad.draw_domain(Domain((i, k), {i: (0, 3), k: (0, 3)}, (i < k,)))
    assert "i < k" in texts(drawing)


def test_what_cannot_be_drawn_is_refused():
    wide = {i: (0, 3), j: (0, 3), k: (0, 3)}
    with pytest.raises(ad.InvalidArgumentError, match="one or two variables"):
        ad.draw_domain(Domain((i, j, k), wide))
    with pytest.raises(ad.InvalidArgumentError, match="needs a value for j"):
        ad.draw_domain(strided(2, 3, 8))
    with pytest.raises(ad.InvalidArgumentError, match="too large to draw"):
        ad.draw_domain(Domain((i, k), {i: (0, 100), k: (0, 100)}))


def test_a_drawing_can_be_saved(tmp_path):
    drawing = ad.draw_domain(Domain((i,), {i: (0, 3)}))
    drawing.save(tmp_path / "points.svg")
    assert (tmp_path / "points.svg").read_text("utf-8") == drawing._repr_svg_()
    root = ElementTree.parse(tmp_path / "points.svg").getroot()
    assert (int(root.get("width")), int(root.get("height"))) == (drawing.width, drawing.height)
