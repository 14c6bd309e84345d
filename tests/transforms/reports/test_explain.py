"""explain() tells the way of every read site, and warnings point at the caller."""

from __future__ import annotations

import warnings

import pytest
from tvm import te, tirx

from tvm_autodiff import DenseSumWarning, differentiate

x = te.placeholder((8,), name="x")
long = te.placeholder((24,), name="long")
table = te.placeholder((5, 3), name="table")
places = te.placeholder((4,), "int32", name="places")


def window(stride, size):
    k = te.reduce_axis((0, 3), "k")
    w = te.placeholder((3,), name="w")
    return te.compute((size,), lambda i: te.sum(x[i * stride + k] * w[k], axis=k), name="y")


def triple():
    k = te.reduce_axis((0, 4), "k")
    return te.compute((4, 4), lambda i, j: te.sum(long[i + j + k + 3], axis=k), name="y")


def dilated(step):
    k = te.reduce_axis((0, 5), "k")
    return te.compute((4,), lambda i: te.sum(long[i * step + k * step], axis=k), name="y")


#: way, tensor, stage, iterations, lower bound: reads or elements
WAYS = [
    ("gather", x, lambda: te.compute((8,), lambda i: x[7 - i], name="y"), 8, 8),
    ("gather", x, lambda: window(1, 6), 24, 18),
    ("residue classes", long, lambda: dilated(3), 56, 24),
    (
        "part of the box",
        x,
        lambda: te.compute((20,), lambda i: x[tirx.Min(i, 7)], name="y"),
        8 + 12,
        12,
    ),
    (
        "scatter-add",
        table,
        lambda: te.compute((4, 3), lambda n, j: table[places[n], j], name="y"),
        12 + 15 + 15,
        15,
    ),
    # 14 elements that nothing reads take an iteration each
    ("ragged loops", long, lambda: triple(), 4**3 + 14, 4**3),
]


@pytest.mark.parametrize("case", WAYS, ids=[w[0] for w in WAYS])
def test_the_way_is_told(case):
    way, tensor, make, iterations, floor = case
    y = make()
    report = differentiate(y, tensor, te.placeholder(y.shape, name="head")).explain()
    assert f"d{tensor.op.name} from y" in report
    assert f"strategy: {way}" in report
    assert f"iterations: {iterations} (lower bound: {floor}, the sum over zeros: " in report


def test_symbolic_work_is_said_to_be():
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    y = te.compute((n,), lambda i: a[n - 1 - i], name="y")
    report = differentiate(y, a, te.placeholder((n,), name="head")).explain()
    assert "iterations: symbolic (lower bound: symbolic, the sum over zeros: symbolic)" in report


def test_a_dense_sum_is_told_with_its_reason_and_warned_of_where_it_was_asked_for():
    k = te.reduce_axis((0, 2), "k")
    y = te.compute((2,), lambda i: te.sum(x[i * i + k * k], axis=k), name="y")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = differentiate(y, x)
    [warning] = caught
    assert warning.category is DenseSumWarning
    assert warning.filename == __file__
    report = result.explain()
    assert "strategy: dense sum" in report
    assert "not solved: " in report
    assert "manual={(y, x): f}" in report


def test_scans_are_told_with_their_steps():
    log_add = te.comm_reducer(
        lambda a, b: te.log(te.exp(a) + te.exp(b)), lambda t: tirx.const(-700, t)
    )
    rows, k = te.placeholder((3, 4), name="rows"), te.reduce_axis((0, 4), "k")
    y = te.compute((3,), lambda i: log_add(rows[i, k], axis=k), name="y")
    first = differentiate(y, rows, te.placeholder((3,), name="head"))
    told = "reducer: two scans combine what is before and after, 12 steps each"
    assert told in first.explain()
    second = differentiate(first[0], rows, te.placeholder((3, 4), name="head2"))
    for side in ("before", "after"):
        assert (
            f"drows from y_{side}\n  strategy: scan in the opposite direction\n"
            "  iterations: 12"
        ) in second.explain()
    plain = te.compute((3,), lambda i: te.sum(rows[i, k], axis=k), name="y")
    assert "scan" not in differentiate(plain, rows, te.placeholder((3,), name="head")).explain()


def test_table_in_notebooks():
    import xml.etree.ElementTree as ElementTree

    result = differentiate(window(2, 3), [x], te.placeholder((3,), name="head"))
    table = ElementTree.fromstring(result.explain()._repr_html_())
    [cells] = [[cell.text for cell in row] for row in table.find("tbody")]
    assert cells[:3] == ["dx from y", "x[i*2 + k]", "gather"]
    text = str(result.explain())
    assert f"iterations: {cells[3]} (lower bound: {cells[4]}," in text


def test_table_has_the_worst_first():
    from tvm_autodiff.transforms.reports.report import Row, report

    rows = [
        Row("da", "a[i]", "gather", 10, 10, fallback=False),
        Row("db", "b[i] < 3", "gather", 30, 10, fallback=False),
        Row("dc", "c[n]", "dense sum", None, None, fallback=True),
    ]
    made = report("text", rows)
    assert made == "text"
    assert [row.gradient for row in made.rows] == ["dc", "db", "da"]
    html = made._repr_html_()
    assert html.count("(fallback)") == 1
    assert "b[i] &lt; 3" in html
