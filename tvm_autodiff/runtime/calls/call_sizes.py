"""What a call of a program of symbolic sizes takes with its arrays: the table and the workspace.

Both follow from the values of the symbols, so a call computes them once for each combination.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...codegen.host.call_check import call_table
from ...codegen.host.direct_calls import ALIGNMENT
from ...codegen.host.workspace import Temporary, Workspace, plan_workspace
from ..files.manifest import Manifest, Sizes
from .signature import Signature, TensorSpec, dim_value, linear_in, symbols_of


def with_sizes(spec: TensorSpec, values: Mapping[str, int]) -> TensorSpec:
    """The description of an array for known symbols.

    Examples
    --------
    >>> with_sizes(TensorSpec("x", ("n", 3), "float32"), {"n": 2}).shape
    (2, 3)
    """
    known = dict(values)
    return replace(spec, shape=tuple(dim_value(dim, known) for dim in spec.shape))


def carriers(signature: Signature) -> tuple[int, ...] | None:
    """The inputs whose shapes determine those of all arguments, or None if there are none.

    Each symbol is a dimension of one of them, or the only unknown of a linear one: ``n + 1``.
    """
    dims = [(number, dim) for number, s in enumerate(signature.inputs) for dim in s.shape]
    symbols = {name for _, dim in dims for name in symbols_of(dim)}
    found: dict[str, int] = {}
    for number, dim in dims:
        if isinstance(dim, str):
            found.setdefault(dim, number)
    for _ in symbols - set(found):
        for number, dim in dims:
            unknown = set(symbols_of(dim)) - set(found)
            if len(unknown) == 1:
                [symbol] = unknown
                if linear_in(symbol, dim, dict.fromkeys(found, 1)) is not None:
                    found[symbol] = number
    return tuple(sorted(set(found.values()))) if found and symbols == set(found) else None


def part_of(sizes: Sizes, values: Mapping[str, int]) -> int:
    """The number of the part of a program that runs for known symbols."""
    known = dict(values)
    return next(
        (n for n, p in enumerate(sizes.parts) if p.low <= (dim_value(p.size, known) or 0) < p.high),
        0,
    )


def launches_of(manifest: Manifest, values: Mapping[str, int]) -> range:
    """The numbers of the launches of a call for known symbols."""
    if manifest.sizes is None or not manifest.sizes.parts:
        return range(len(manifest.launches))
    number = part_of(manifest.sizes, values)
    counts = [part.launches for part in manifest.sizes.parts]
    return range(sum(counts[:number]), sum(counts[: number + 1]))


def temporaries_of(sizes: Sizes, values: Mapping[str, int]) -> range:
    """The numbers of the temporaries of a call for known symbols."""
    if not sizes.parts:
        return range(len(sizes.temporaries))
    number = part_of(sizes, values)
    counts = [part.temporaries for part in sizes.parts]
    return range(sum(counts[:number]), sum(counts[: number + 1]))


def planned(sizes: Sizes, values: Mapping[str, int]) -> Workspace:
    """The workspace of a call for known symbols, with the temporaries of `temporaries_of`."""
    known = dict(values)
    temporaries = [
        Temporary(one.name, dim_value(one.size, known) or 0, one.first, one.last)
        for one in (sizes.temporaries[number] for number in temporaries_of(sizes, values))
    ]
    return plan_workspace(temporaries, ALIGNMENT)


def table_for(manifest: Manifest, values: Mapping[str, int]) -> tuple[np.ndarray, int]:
    """The array table for known symbols, and the bytes of the workspace."""
    assert manifest.sizes is not None
    signature = manifest.signature
    specs = [with_sizes(spec, values) for spec in (*signature.inputs, *signature.outputs)]
    results = range(len(signature.inputs), len(specs))
    workspace = planned(manifest.sizes, values)
    read = [dim_value(dim, dict(values)) or 0 for dim in manifest.sizes.values]
    offsets = [0] * len(manifest.sizes.temporaries)
    for number, offset in zip(
        temporaries_of(manifest.sizes, values), workspace.offsets, strict=True
    ):
        offsets[number] = offset
    part = [part_of(manifest.sizes, values)] if manifest.sizes.parts else []
    further = [*part, *read, *offsets]
    arrays = [(spec.dtype, spec.shape) for spec in specs]
    return call_table(arrays, {*manifest.updated, *results}, further), workspace.size
