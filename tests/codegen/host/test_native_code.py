"""Machine code that cannot be written to a file first: the error names the folder and a way out."""

from __future__ import annotations

import resource
import tempfile

import pytest

from tvm_autodiff.codegen.host.native_code import native_functions
from tvm_autodiff.errors import LoweringError

SEVEN = "define i64 @seven() { ret i64 7 }"


def test_no_folder(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/missing/folder")
    with pytest.raises(LoweringError, match="/missing/folder .*No such file.*set TMPDIR"):
        native_functions(["seven"], SEVEN)


def test_no_space():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(LoweringError, match="File too large.*set TMPDIR"):
            native_functions(["seven"], SEVEN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
