"""The pictures of domains in the documentation are those that docs/draw_domains.py draws today."""

from __future__ import annotations

import importlib.util
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
