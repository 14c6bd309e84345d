"""Checks the arguments and results of a call one by one, with errors that name the argument.

`CompiledFunction` uses it if the quick call is not possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import CallError
from ...keywords import suggestion
from ..arrays import Array, ArrayKind, is_masked, is_recorded, kind_of, numpy_kind
from ..files.manifest import Manifest
from .call_sizes import temporaries_of
from .overlap import first_overlap
from .results import NumberOf, is_number
from .signature import Signature, TensorSpec, dim_text, dim_value


class CheckedArguments:
    """The part of a compiled function that checks calls against its signature.

    Attributes
    ----------
    signature : Signature
        Names, shapes and dtypes of arguments and results.
    notice : str or None
        The text of `build`'s warning about slow stages.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.signature: Signature = manifest.signature
        self.notice: str | None = manifest.notice
        self._manifest = manifest

    def in_order(self, arrays: Sequence[Array], named: Mapping[str, Array]) -> tuple[Array, ...]:
        """The arguments of a call in the order of the signature: positional ones, then named ones.
        """
        names = [spec.name for spec in self.signature.inputs]
        listed = ", ".join(names)
        given: dict[int, Array] = dict(enumerate(arrays))
        for name, array in named.items():
            places = [number for number, known in enumerate(names) if known == name]
            if not places:
                hint = suggestion(name, names) or "."
                raise CallError(f"there is no argument {name!r}{hint} There are {listed}")
            if len(places) > 1:
                raise CallError(
                    f"{len(places)} arguments are named {name!r} (of {listed}): pass them in order"
                )
            if places[0] in given:
                raise CallError(f"argument {name!r} is passed twice: by position and by name")
            given[places[0]] = array
        missing = [name for number, name in enumerate(names) if number not in given]
        if missing:
            raise CallError(
                f"expected {len(names)} arrays ({listed}), got {len(given)}: "
                f"{', '.join(missing)} missing"
            )
        self.signature.check_count(len(given))
        return tuple(given[number] for number in range(len(names)))

    def _bound(
        self, arrays: Sequence[Array], out: Any
    ) -> tuple[list[Any], list[Array], list[ArrayKind]]:
        """The arguments of the raw function, including the results, and the array kinds of the
        results.
        """
        signature = self.signature
        signature.check_count(len(arrays))
        sizes: dict[str, int] = {}
        arguments: list[Any] = []
        first: ArrayKind | None = None
        for number, (array, spec) in enumerate(zip(arrays, signature.inputs, strict=True)):
            kind, argument = self._argument(array, spec, sizes, number in self._manifest.updated)
            arguments.append(argument)
            first = first or kind
        if not signature.static:
            self._check_symbols(arrays, sizes)
        follow = first or numpy_kind()
        results: list[Array]
        if out is None:
            results = [
                follow.empty(self._result_shape(spec, sizes), spec.dtype)
                for spec in signature.outputs
            ]
            arguments += [follow.borrow(result, True) for result in results]
        else:
            results = self._listed(out)
            arguments += self._outputs(results, sizes)
        self._refuse_overlap(arrays, results, out is not None)
        return arguments, results, [follow] * len(results)

    def _listed(self, out: Any) -> list[Array]:
        """The arrays that ``out=`` holds."""
        if self.signature.single and not isinstance(out, (list, tuple)):
            return [out]
        if not hasattr(out, "__iter__"):
            count = len(self.signature.outputs)
            raise CallError(f"out= must contain {count} arrays, got {type(out).__name__}")
        return list(out)

    def _refuse_overlap(self, arrays: Sequence[Array], results: list[Array], given: bool) -> None:
        count = len(arrays)
        written = list(self._manifest.updated)
        if given:
            written += range(count, count + len(results))
        if not written:
            return
        pair = first_overlap([*arrays, *results], written)
        if pair is None:
            return
        specs = (*self.signature.inputs, *self.signature.outputs)
        names = [
            f"{'output' if number >= count else 'argument'} {specs[number].name!r}"
            for number in pair
            if number < len(specs)
        ]
        over = " (to write new values over an input, build with updates=)"
        raise CallError(
            f"{' and '.join(names)} share memory, and {names[0]} is written: pass a copy of one"
            f"{over if pair[0] >= count else ''}"
        )

    @staticmethod
    def _result_shape(spec: TensorSpec, sizes: dict[str, int]) -> Sequence[int]:
        if spec.static:
            return spec.shape
        return [value for dim in spec.shape if (value := dim_value(dim, sizes)) is not None]

    def _argument(
        self, array: Array, spec: TensorSpec, sizes: dict[str, int], updated: bool
    ) -> tuple[ArrayKind | None, Any]:
        kind = kind_of(array)
        follow: ArrayKind | None = kind
        if is_number(array, spec) and not updated:
            array = NumberOf(spec)(array)
            kind, follow = numpy_kind(), None
        if kind is None:
            hint = ": pass array.filled(value), or array.data" if is_masked(array) else ""
            raise CallError(
                f"argument {spec.name!r} must be an array (numpy, TVM, torch, JAX or DLPack) of "
                f"{spec}, got {type(array).__name__}{hint}"
            )
        if isinstance(array, np.generic) and updated:
            raise CallError(f"argument {spec.name!r} is updated: pass an array, not a number")
        if isinstance(array, np.generic):
            array = np.asarray(array)
        self._check("argument", kind, array, spec, sizes, updated)
        try:
            return follow, kind.borrow(array, updated)
        except CallError as error:
            raise CallError(f"argument {spec.name!r} is updated: {error}") from None

    def _outputs(self, arrays: Sequence[Array], sizes: dict[str, int]) -> list[Any]:
        outputs = self.signature.outputs
        if len(arrays) != len(outputs):
            raise CallError(f"out= must contain {len(outputs)} arrays, got {len(arrays)}")
        borrowed = []
        for array, spec in zip(arrays, outputs, strict=True):
            kind = kind_of(array)
            if kind is None or isinstance(array, np.generic):
                raise CallError(
                    f"output {spec.name!r} must be an array that can be written, "
                    f"got {type(array).__name__}"
                )
            self._check("output", kind, array, spec, sizes, True)
            try:
                borrowed.append(kind.borrow(array, True))
            except CallError as error:
                raise CallError(f"output {spec.name!r}: {error}") from None
        return borrowed

    def _check(
        self,
        place: str,
        kind: ArrayKind,
        array: Array,
        spec: TensorSpec,
        sizes: dict[str, int],
        written: bool,
    ) -> None:
        shape, dtype = kind.shape_dtype(array)
        self.signature.check_array(place, spec, shape, dtype, sizes)
        if is_recorded(array):
            raise CallError(
                f"{place} {spec.name!r} requires a gradient, and autograd does not record compiled "
                "functions: make an operator with tvm_autodiff.interop.torch.function, or pass "
                "a tensor from .detach(), or call under torch.no_grad()"
            )
        problem = kind.problem(array)
        if problem is not None:
            back = ", and copy what is written back afterwards" if written else ""
            raise CallError(
                f"{place} {spec.name!r} must be contiguous in CPU memory, but has {problem}{back}"
            )

    def _check_symbols(self, arrays: Sequence[Array], sizes: dict[str, int]) -> None:
        # check again with all symbols known: shapes like (2*n,) may precede n
        for array, spec in zip(arrays, self.signature.inputs, strict=True):
            if not spec.static and (kind := kind_of(array)) is not None:
                shape, dtype = kind.shape_dtype(array)
                self.signature.check_array("argument", spec, shape, dtype, sizes)
        self._check_not_negative(sizes)
        self._check_limits(sizes)

    def _check_not_negative(self, sizes: dict[str, int]) -> None:
        """Raise `CallError` if a result or a temporary would have a negative size."""
        given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        for spec in self.signature.outputs:
            for number, dim in enumerate(spec.shape):
                value = dim_value(dim, sizes)
                if value is not None and value < 0:
                    raise CallError(
                        f"output {spec.name!r} would have {dim_text(dim)} = {value} elements in "
                        f"dimension {number} for {given}: pass larger arrays"
                    )
        pieces = [(storage.size, storage.tensors) for storage in self._manifest.storages]
        if self._manifest.sizes is not None:
            every = self._manifest.sizes.temporaries
            ours = (every[number] for number in temporaries_of(self._manifest.sizes, sizes))
            pieces += [(one.size, (one.name,)) for one in ours]
        for size, names in pieces:
            value = dim_value(size, sizes)
            if value is not None and value < 0:
                raise CallError(
                    f"{', '.join(names)} would take {dim_text(size)} = {value} "
                    f"bytes for {given}: pass larger arrays"
                )

    def _check_limits(self, sizes: dict[str, int]) -> None:
        """Raise `CallError` if a stage would read outside of a tensor for these sizes."""
        for one in self._manifest.limits:
            least, most, dim = (dim_value(n, sizes) for n in (one.least, one.most, one.dim))
            if least is None or most is None or dim is None or (least >= 0 and most < dim):
                continue
            if all((dim_value(loop, sizes) or 0) > 0 for loop in one.loops):
                given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
                outside = f"up to element {most}" if most >= dim else f"from element {least}"
                raise CallError(
                    f"{one.stage} reads {one.tensor} {outside} of a dimension that has "
                    f"{dim} for {given}: pass arrays whose sizes agree"
                )
