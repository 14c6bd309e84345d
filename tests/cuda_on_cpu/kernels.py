"""Translates the library's CUDA C into C++ that the host's compiler accepts.

Each kernel becomes a function in the namespace of its program, with a description that the runtime
finds by name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KERNEL = 'extern "C" __global__'  #: what the first kernel of a source begins with
_DECLARATION = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\);'
)
_SHARED = re.compile(r"__shared__ (?:alignas\(\d+\) )?(\w[\w ]*?) (\w+)\[(\d+)\];")


@dataclass(frozen=True)
class Source:
    """The kernels of a program.

    Attributes
    ----------
    prefix : str
        Prefix of the names of its kernels, different for each program.
    text : str
        CUDA C as the library generates it.
    extents : mapping
        For each kernel the extents that a launch passes after the arguments: ``blockIdx.x`` etc.
    """

    prefix: str
    text: str
    extents: Mapping[str, Sequence[str]]


def source_of(text: str, module: Any) -> Source:
    """The kernels of a module of scheduled functions, with the text that TVM generates for it.

    Equal kernels have the same names in every process, so that they are compiled once.
    """
    functions = {str(f.attrs["global_symbol"]): f for _, f in module.functions_items()}
    extents = {
        name: [str(axis) for axis in func.attrs["tirx.kernel_launch_params"]]
        for name, func in functions.items()
    }
    digest = hashlib.sha256(repr((text, sorted(extents.items()))).encode()).hexdigest()
    return Source(f"p{digest[:16]}_", text, extents)


def translated(sources: Sequence[Source]) -> str:
    """One C++ source for the kernels of several programs."""
    different = {source.prefix: source for source in sources if source.text}
    return "\n".join(['#include "cuda_on_cpu.h"', *map(_program, different.values())])


def _program(source: Source) -> str:
    # what TVM writes in front is the header's
    body = source.text[source.text.index(KERNEL) :]
    parameters = dict(_DECLARATION.findall(body))
    assert set(parameters) == set(source.extents), "a kernel is not declared"
    numbers = iter(range(len(body)))

    def shared(match: re.Match[str]) -> str:
        kind, name, extent = match.groups()
        return f"SHARED_ARRAY({kind}, {name}, {extent}, {next(numbers)});"

    body, count = _SHARED.subn(shared, body)
    assert count == body.count("SHARED_ARRAY")
    assert "__shared__" not in body, "an array that is declared in another way"
    body = body.replace('extern "C" ', "")
    described = [
        _description(source, name, [p.strip() for p in text.split(",") if p.strip()])
        for name, text in parameters.items()
    ]
    return "\n".join([f"namespace {source.prefix} {{", body, "}", *described])


def _description(source: Source, kernel: str, parameters: Sequence[str]) -> str:
    """C++ that tells the runtime how to call a kernel."""
    kinds, names = zip(*(parameter.rsplit(" ", 1) for parameter in parameters), strict=True)
    values, sizes = [], []
    for number, kind in enumerate(kinds):
        kind = kind.replace("__restrict__", "").strip()
        if kind.endswith("*"):
            values.append(f"static_cast<{kind}>(values[{number}].array)")
            sizes.append(f"sizeof({kind[:-1]})")
        else:
            field = "real" if kind in ("float", "double") else "integer"
            values.append(f"static_cast<{kind}>(values[{number}].{field})")
            sizes.append("0")
    extents = "".join(
        axis[-1].upper() if axis.startswith("blockIdx") else axis[-1]
        for axis in source.extents[kernel]
    )
    symbol = f"{source.prefix}{kernel}"
    quoted = ", ".join(f'"{name.removesuffix("_ptr")}"' for name in names)
    return f"""
UNSEEN static void {symbol}_call(const cuda_on_cpu::Value* values) {{
  {source.prefix}::{kernel}({", ".join(values)});
}}
static const char* const {symbol}_names[] = {{{quoted}}};
static const int {symbol}_sizes[] = {{{", ".join(sizes)}}};
extern "C" const cuda_on_cpu::Kernel {symbol}{{
    "{kernel}", {symbol}_call, {len(names)}, {symbol}_names, {symbol}_sizes, "{extents}"}};
"""
