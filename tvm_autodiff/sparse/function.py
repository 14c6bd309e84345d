"""Compiled functions that return scipy.sparse matrices.

A function of inputs and index arrays becomes a function of the inputs only. The index arrays of a
matrix are made once and shared by all results, without checks or copies in calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from ..errors import CallError, InvalidArgumentError, LoweringError
from ..expr.nodes import Tensor, Var, node_id
from ..graph.stage import shape_of
from ..keywords import suggestion
from .matrix import Bound, SparseMatrix

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Maker = Callable[[Any], Any]

#: dtypes that scipy.sparse supports
_DTYPES = ("float32", "float64")
#: the number of symbolic sizes whose index arrays are kept
_MOST_SIZES = 8


def takes_sparse(build: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap `build` to accept `SparseMatrix` among its outputs."""

    @functools.wraps(build)
    def building(*args: Any, **options: Any) -> Any:
        given = dict(zip(("inputs", "outputs", "target"), args, strict=False)) | options
        outputs = given.get("outputs")
        single = isinstance(outputs, SparseMatrix)
        if not single and not (
            isinstance(outputs, (list, tuple))
            and any(isinstance(output, SparseMatrix) for output in outputs)
        ):
            return build(*args, **options)
        listed: list[Any] = [outputs] if single else list(cast(Any, outputs))
        matrices = [output for output in listed if isinstance(output, SparseMatrix)]
        inputs = given["inputs"]
        own = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        hidden = [tensor for matrix in matrices for tensor in matrix.placeholders]
        given["inputs"] = [*own, *hidden]
        given["outputs"] = [
            output.values if isinstance(output, SparseMatrix) else output for output in listed
        ]
        kinds = [_kind(output) if isinstance(output, SparseMatrix) else None for output in listed]
        sizes = _places_of_sizes(own, matrices)
        function = cast(Any, build)(**given)
        return SparseFunction(function, matrices, kinds, sizes, single)

    return cast(Callable[Parameters, Result], building)


def _kind(matrix: SparseMatrix) -> type:
    """The scipy matrix class of a format."""
    try:
        import scipy.sparse
    except ImportError as error:
        raise InvalidArgumentError(
            f"{matrix.name}: building a sparse matrix needs scipy: pip install "
            "'tvm_autodiff[sparse]'; or build its .values, with the contents of .constants"
        ) from error
    if matrix.dtype not in _DTYPES:
        raise InvalidArgumentError(
            f"{matrix.name} has dtype {matrix.dtype}, which scipy.sparse does not take: cast the "
            "input to float32, or build its .values"
        )
    return getattr(scipy.sparse, f"{matrix.format}_matrix")


def _places_of_sizes(
    inputs: Sequence[Tensor], matrices: Sequence[SparseMatrix]
) -> list[tuple[Var, int, int]]:
    """For each symbolic size, an input and the dimension of it that has this size."""
    found: dict[int, tuple[Var, int, int]] = {}
    known = {
        node_id(extent): (number, dim)
        for number, tensor in reversed(list(enumerate(inputs)))
        for dim, extent in enumerate(shape_of(tensor))
        if not isinstance(extent, int)
    }
    for matrix in matrices:
        for var in matrix.symbols:
            if node_id(var) not in known:
                raise InvalidArgumentError(
                    f"{matrix.name} depends on the size {var.name}, which is not the extent of any "
                    "input: add an input that has it, even if nothing reads it"
                )
            found[node_id(var)] = (var, *known[node_id(var)])
    return list(found.values())


def _maker(matrix: SparseMatrix, bound: Bound, kind: Any) -> Maker:
    """A function that makes a scipy matrix from values: it copies a first matrix with other data.
    """
    first, second = bound.indices
    data = np.zeros(len(first), matrix.dtype)
    places = (data, (first, second)) if matrix.format == "coo" else (data, first, second)
    whole = kind(places, shape=bound.shape)
    whole.has_canonical_format = True
    if matrix.format != "coo":
        whole.has_sorted_indices = True
    shared = {name: value for name, value in whole.__dict__.items() if name != "data"}
    new = kind.__new__

    def make(values: Any) -> Any:
        flat = values if type(values) is np.ndarray else np.asarray(values)
        made = new(kind)
        made.__dict__ = attributes = shared.copy()
        attributes["data"] = flat if flat.ndim == 1 else flat.reshape(-1)
        return made

    return make


class SparseFunction:
    """A compiled function some of whose results are scipy.sparse matrices.

    It is called like a `CompiledFunction`. All results of one function share read-only index
    arrays: call ``result.copy()`` before you add or remove entries.

    Attributes
    ----------
    function : CompiledFunction
        The function of the inputs and the index arrays that computes the values.
    """

    def __init__(
        self,
        function: Any,
        matrices: Sequence[SparseMatrix],
        kinds: Sequence[type | None],
        sizes: Sequence[tuple[Var, int, int]],
        single: bool,
    ) -> None:
        self.function = function
        self._matrices, self._kinds = list(matrices), list(kinds)
        self._sizes = list(sizes)
        self._single = single
        hidden = sum(len(matrix.placeholders) for matrix in matrices)
        self._names = [spec.name for spec in function.signature.inputs]
        self._names = self._names[: len(self._names) - hidden]
        #: arrays and makers of results for sizes of earlier calls, the last ones at the end
        self._bound: dict[tuple[int, ...], tuple[tuple[Any, ...], list[Maker | None]]] = {}
        self._constant = None if sizes else self._at(())

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Run the program.

        Parameters
        ----------
        *arrays, **named
            As in `CompiledFunction`. Results cannot be written into arrays of the caller.
        """
        if named:
            arrays = self._in_order(arrays, named)
        bound, makers = self._constant or self._at(self._sizes_of(arrays))
        results = self.function(*arrays, *bound)
        if self._single and makers[0] is not None:
            return makers[0](results[0])
        return [
            result if make is None else make(result)
            for make, result in zip(makers, results, strict=True)
        ]

    def _sizes_of(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """The values of the symbolic sizes, from the shapes of arrays."""
        shapes = [tuple(getattr(array, "shape", ())) for array in arrays]
        for var, number, dim in self._sizes:
            if number >= len(shapes) or dim >= len(shapes[number]):
                raise CallError(
                    f"argument {self._names[number]} must be an array whose dimension {dim} is "
                    f"{var.name}; the signature is {self.function.signature}"
                )
        return tuple(int(shapes[number][dim]) for _, number, dim in self._sizes)

    def _at(self, sizes: tuple[int, ...]) -> tuple[tuple[Any, ...], list[Maker | None]]:
        """The index arrays and the makers of results for some sizes."""
        found = self._bound.pop(sizes, None)
        if found is None:
            values = {var: size for (var, _, _), size in zip(self._sizes, sizes, strict=True)}
            bounds = [matrix.at(values) for matrix in self._matrices]
            pairs = iter(zip(self._matrices, bounds, strict=True))
            makers = [None if kind is None else _maker(*next(pairs), kind) for kind in self._kinds]
            found = tuple(array for bound in bounds for array in bound.arrays), makers
        while len(self._bound) >= _MOST_SIZES:
            del self._bound[next(iter(self._bound))]
        self._bound[sizes] = found
        return found

    def _in_order(self, arrays: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
        if "out" in named:
            raise InvalidArgumentError(
                "out= does not support sparse matrices: omit it, and use the returned matrix"
            )
        own = self._names
        if all(own.count(name) == 1 for name in named):
            given = dict(enumerate(arrays)) | {own.index(n): array for n, array in named.items()}
            if sorted(given) == list(range(len(own))) and len(given) == len(arrays) + len(named):
                return tuple(given[place] for place in range(len(own)))
        listed = ", ".join(own)
        for name in named:
            if name not in own:
                hint = suggestion(name, own) or "."
                raise CallError(f"there is no argument {name!r}{hint} There are {listed}")
        raise CallError(
            f"expected each of the arrays {listed} once; got {len(arrays)} in order, and by name "
            f"{', '.join(named)}"
        )

    @property
    def signature(self) -> Any:
        """Names, shapes and dtypes, with the index arrays among the inputs."""
        return self.function.signature

    @property
    def num_threads(self) -> int:
        """The number of CPU threads that the kernels use."""
        return self.function.num_threads

    @property
    def notice(self) -> str | None:
        """The text of `build`'s warning about slow stages."""
        return self.function.notice

    def memory(self, **sizes: int) -> Any:
        """The memory of the computation of the values."""
        return self.function.memory(**sizes)

    def profile(self, *arrays: Any, repeats: int = 20, **named: Any) -> Any:
        """Time each kernel of a call."""
        arrays = self._in_order(arrays, named) if named else arrays
        bound, _ = self._constant or self._at(self._sizes_of(arrays))
        return self.function.profile(*arrays, *bound, repeats=repeats)

    def source(self, language: str | None = None) -> str:
        """The generated code."""
        return self.function.source(language)

    def export(self, path: Any) -> None:
        """Raise an error, because a library cannot hold index arrays.

        Raises
        ------
        LoweringError
            Always.
        """
        raise LoweringError(
            "a library cannot hold index arrays: export the function of matrix.values, which takes "
            "those of matrix.constants as arguments"
        )

    def __repr__(self) -> str:
        return f"<SparseFunction {self.function.signature}>"
