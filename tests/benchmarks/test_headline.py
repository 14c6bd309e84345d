"""The headline of README.md: drawn from the recorded figures, and kept up to date."""

from __future__ import annotations

import re
from math import exp, log
from pathlib import Path

import pytest

from benchmarks.headline import PICTURE, TABLE, picture, place, ratios, write

ROOT = Path(__file__).parent.parent.parent
TEXT = TABLE.read_text(encoding="utf-8")


def test_the_picture_is_that_of_the_recorded_figures():
    assert PICTURE.read_text(encoding="utf-8") == picture(*ratios(TEXT))


def test_the_mean_is_that_of_the_cases():
    cases, mean = ratios(TEXT)
    assert len(cases) >= 20
    assert exp(sum(map(log, cases.values())) / len(cases)) == pytest.approx(mean, abs=0.01)


def test_the_readme_has_the_same_mean():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.search(r"geometric mean[^.]*?(\d\.\d+) times", readme, re.DOTALL)
    assert said is not None
    assert float(said[1]) == ratios(TEXT)[1]


def test_bars_are_sorted_and_on_one_scale():
    svg = picture({"slow": 0.95, "fast": 4.0, "even": 1.0}, 1.6)
    names = re.findall(r'text-anchor="end">(\w+)<', svg)
    assert names == ["fast", "even", "slow"]
    assert place(4) - place(2) == pytest.approx(place(2) - place(1))


def test_a_page_without_figures_is_refused():
    with pytest.raises(ValueError, match="no table for 2 threads"):
        ratios("# Benchmarks\n")


def test_a_folder_gets_the_picture_of_its_own_figures(tmp_path):
    most = f"{max(ratios(TEXT)[0].values()):.2f}"
    (tmp_path / TABLE.name).write_text(TEXT.replace(f"  {most} |", "  4.51 |"), encoding="utf-8")
    write(tmp_path)
    svg = (tmp_path / PICTURE.name).read_text(encoding="utf-8")
    assert ">4.51<" in svg
    assert f">{most}<" not in svg
