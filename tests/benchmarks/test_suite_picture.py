"""The picture of docs/benchmarks.md: that of the recorded figures, sorted, and on one scale."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html import unescape
from math import exp, log

import pytest

from benchmarks.suite.picture import DOCS, PAGE, PICTURE, panels, picture, place, write

TEXT = (DOCS / PAGE).read_text("utf-8")
SVG = "{http://www.w3.org/2000/svg}"


def elements(drawn, name, kind):
    return [e for e in ElementTree.fromstring(drawn).iter(f"{SVG}{name}") if e.get("class") == kind]


def test_the_picture_is_that_of_the_recorded_figures():
    assert (DOCS / PICTURE).read_text("utf-8") == picture(TEXT)


def test_every_time_has_a_mark_and_every_case_a_bar():
    drawn, tables = picture(TEXT), panels(TEXT)
    marks = elements(drawn, "circle", "mark") + elements(drawn, "path", "mark")
    assert len(marks) == sum(len(times) for table in tables for times in table.cases.values()) > 100
    assert len(elements(drawn, "rect", "bar")) == sum(len(table.cases) for table in tables)


def test_the_recorded_means_are_those_of_the_recorded_times():
    for table in panels(TEXT):
        ratios = [table.fastest(case) for case in table.cases]
        mean = exp(sum(map(log, ratios)) / len(ratios))
        assert mean == pytest.approx(table.mean, abs=0.02)
        assert f"{table.mean:.2f}× on {table.threads} thread" in picture(TEXT)


def test_cases_are_sorted_by_the_first_panel():
    names = re.findall(r'text-anchor="end">([^<]+)<', picture(TEXT))
    ratios = [panels(TEXT)[0].fastest(unescape(name)) for name in names]
    assert len(ratios) > 10
    assert ratios == sorted(ratios, reverse=True)


def test_one_scale():
    assert place(4) - place(2) == pytest.approx(place(2) - place(1))
    assert place(1e9) == place(110)


def test_other_figures_give_another_picture(tmp_path):
    [_, new_arrays, *_] = re.findall(r"[\d.]+ \([\d.]+\)", TEXT)
    (tmp_path / PAGE).write_text(TEXT.replace(new_arrays, "0.100 (0.100)"), "utf-8")
    write(tmp_path)
    assert (tmp_path / PICTURE).read_text("utf-8") != picture(TEXT)


def test_a_page_without_tables_is_refused():
    with pytest.raises(ValueError, match="no table of times"):
        picture("# Benchmarks\n")
