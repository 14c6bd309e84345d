"""Built functions that return scipy.sparse matrices.

In: a compiled function of the program's inputs and of index arrays, which are bound here. Out: a
function of the inputs alone. The index arrays of a matrix are made once and shared by all results;
a call makes no check and no copy of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from ..errors import InvalidArgumentError, LoweringError
from .gathered import Constant
from .matrix import SparseMatrix

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Maker = Callable[[Any], Any]

#: dtypes of values that scipy computes with
_DTYPES = ("float32", "float64")


def takes_sparse(build: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`build` that also takes `SparseMatrix` among its outputs."""

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
        constants = [
            constant
            for output in listed
            if isinstance(output, SparseMatrix)
            for constant in output.constants
        ]
        inputs = given["inputs"]
        own = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        given["inputs"] = [*own, *(tensor for tensor, _ in constants)]
        given["outputs"] = [
            output.values if isinstance(output, SparseMatrix) else output for output in listed
        ]
        makers = [_maker(output) if isinstance(output, SparseMatrix) else None for output in listed]
        return SparseFunction(cast(Any, build)(**given), constants, makers, single)

    return cast(Callable[Parameters, Result], building)


def _maker(matrix: SparseMatrix) -> Maker:
    """What makes a scipy matrix of values: a copy of a first one, with other data."""
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
    kind = getattr(scipy.sparse, f"{matrix.format}_matrix")
    first, second = matrix.indices()
    data = np.zeros(matrix.nnz, matrix.dtype)
    places = (data, (first, second)) if matrix.format == "coo" else (data, first, second)
    whole = kind(places, shape=matrix.shape)
    whole.has_canonical_format  # noqa: B018  found once, and kept in the attributes
    whole.has_sorted_indices = True
    whole.has_canonical_format = True
    attributes = dict(whole.__dict__)

    def make(values: Any) -> Any:
        made = kind.__new__(kind)
        made.__dict__.update(attributes)
        made.data = np.asarray(values).reshape(-1)
        return made

    return make


class SparseFunction:
    """A compiled function, some results of which are scipy.sparse matrices.

    It is called as a `CompiledFunction` is. The index arrays of all results of one function are the
    same objects and read-only: ``result.copy()`` before entries are removed or put in.

    Attributes
    ----------
    function : CompiledFunction
        The function of the inputs and the index arrays that computes the values.
    """

    def __init__(
        self,
        function: Any,
        constants: Sequence[Constant],
        makers: Sequence[Maker | None],
        single: bool,
    ) -> None:
        self.function = function
        self._arrays = tuple(array for _, array in constants)
        self._makers = list(makers)
        self._only = makers[0] if single else None

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run the program.

        Parameters
        ----------
        *arrays, **named
            As of `CompiledFunction`; results cannot be written into arrays of the caller.
        """
        if named:
            arrays = self._given(arrays, named)
            results = self.function(*arrays)
        else:
            results = self.function(*arrays, *self._arrays)
        if self._only is not None:
            return self._only(results[0])
        return [
            result if make is None else make(result)
            for make, result in zip(self._makers, results, strict=True)
        ]

    def _given(self, arrays: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
        if not named:
            return (*arrays, *self._arrays)
        if "out" in named:
            raise InvalidArgumentError(
                "out= takes no sparse matrices: leave it out, and take what the call returns"
            )
        names = [spec.name for spec in self.function.signature.inputs]
        own = names[: len(names) - len(self._arrays)]
        if all(own.count(name) == 1 for name in named):
            places = {own.index(name): array for name, array in named.items()}
            given = dict(enumerate(arrays)) | places
            if sorted(given) == list(range(len(own))) and len(given) == len(arrays) + len(named):
                return (*(given[place] for place in range(len(own))), *self._arrays)
        # what is wrong is told where arguments of any function are put in order
        return self.function._in_order((*arrays, *self._arrays), named)

    @property
    def signature(self) -> Any:
        """Names, shapes and dtypes, those of the index arrays among the inputs."""
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
        return self.function.profile(*self._given(arrays, named), repeats=repeats)

    def source(self, language: str | None = None) -> str:
        """The generated code."""
        return self.function.source(language)

    def export(self, path: Any) -> None:
        """Refused: a library holds no index arrays.

        Raises
        ------
        LoweringError
            Always.
        """
        raise LoweringError(
            "a library holds no index arrays: export the function of matrix.values, which takes "
            "those of matrix.constants as arguments"
        )

    def __repr__(self) -> str:
        return f"<SparseFunction {self.function.signature}>"
