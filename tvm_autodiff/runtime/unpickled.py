"""Refuses to pickle and to copy objects that hold machine code."""

from __future__ import annotations

from typing import Any, SupportsIndex

from ..errors import CallError


class Unpickled:
    """An object that pickle and copy refuse; TVM's message would not tell what to do."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise CallError(
            "a compiled function holds machine code and cannot be pickled or copied: it may be "
            "shared by threads and forked processes; for others, write it to a file with "
            ".export(path) and load it with tvm_autodiff.load(path)"
        )
