"""Pages whose examples are run: python blocks in order, beside the text blocks that follow them.

A block ``python`` is executed in the namespace of the page. A block ``text`` directly after it
holds what it prints; without one it must print nothing.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"^\s*(?:import|from) (?:tvm_autodiff\.interop\.)?(torch|jax)\b", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A python block, the line that it begins at, and what the page says that it prints."""

    line: int
    source: str
    printed: str | None
    span: tuple[int, int]  #: of the printed text in the page


def blocks_of(text: str) -> list[tuple[str, str]]:
    """The language and the content of every fenced block."""
    return _BLOCK.findall(text)


def examples_of(text: str) -> list[Example]:
    """The python blocks of a page."""
    blocks = list(_BLOCK.finditer(text))
    found = []
    for number, block in enumerate(blocks):
        if block[1] != "python":
            continue
        line = text.count("\n", 0, block.start()) + 1
        after = blocks[number + 1] if number + 1 < len(blocks) else None
        if after is not None and after[1] == "text":
            found.append(Example(line, block[2], after[2], after.span(2)))
        else:
            found.append(Example(line, block[2], None, (0, 0)))
    return found


def frameworks_of(text: str) -> set[str]:
    """The frameworks that the examples of a page import."""
    sources = "\n".join(example.source for example in examples_of(text))
    return set(_IMPORT.findall(sources))


def missing(text: str) -> set[str]:
    """The frameworks that a page needs and that are not installed."""
    return {name for name in frameworks_of(text) if not find_spec(name)}


def outputs_of(text: str, page: str) -> list[tuple[Example, str]]:
    """Run the examples of a page, in order; what each of them prints."""
    namespace: dict[str, Any] = {"__name__": "__page__"}
    found = []
    for example in examples_of(text):
        if missing(f"```python\n{example.source}```"):
            continue
        padded = "\n" * example.line + example.source  # lines of errors are lines of the page
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(padded, page, "exec"), namespace)
        found.append((example, out.getvalue()))
    return found


def rewritten(path: Path) -> None:
    """Put what the examples print into the page."""
    text = path.read_text("utf-8")
    for example, printed in reversed(outputs_of(text, str(path))):
        if example.printed is not None:
            start, stop = example.span
            text = text[:start] + printed + text[stop:]
    path.write_text(text, "utf-8")
