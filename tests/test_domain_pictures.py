"""The pictures of domains in the documentation are those that docs/draw_domains.py draws today."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "docs" / "draw_domains.py"


@pytest.fixture(scope="module")
def drawn():
    specification = importlib.util.spec_from_file_location("draw_domains", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "draw_domains", module)  # dataclasses look their module up
        specification.loader.exec_module(module)
        return module.pictures()


def test_pictures_are_current(drawn):
    folder = SCRIPT.parent / "explanation"
    kept = {path.name: path.read_text("utf-8") for path in folder.glob("domain_*.svg")}
    assert kept == drawn


def test_filled_points_are_those_that_count(drawn):
    # the pairs (i, k) with 2i + k = 6 and with 2i + k = 7, each drawn before and after
    pairs = [sum(2 * i + k == j for i in range(8) for k in range(3)) for j in (6, 7)]
    assert drawn["domain_stride.svg"].count('fill="#0b7285"') == 2 * sum(pairs)
    counts = re.findall(r"(\d+) iterations, (\d+) needed", drawn["domain_stride.svg"])
    assert counts == [("24", "2"), ("2", "2"), ("24", "1"), ("2", "1")]
    triangle = sum(i + 2 * k <= 5 for i in range(9) for k in range(9))
    [(before, of_before), (after, of_after)] = re.findall(
        r"(\d+) iterations, (\d+) needed", drawn["domain_triangle.svg"]
    )
    assert int(of_before) == int(of_after) == triangle
    assert int(after) < int(before)
