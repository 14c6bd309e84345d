"""`function`: turns a function of te tensors into a function of JAX arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import update_wrapper
from typing import Any

import jax
import numpy as np

from ...errors import InvalidArgumentError
from ...expr.nodes import is_tensor
from ...functions.leaves import refuse_dtype
from ...functions.tracing import called, described, inputs_of
from ...graph.graph import Graph
from ...graph.out_of_bounds import refuse_reads_out_of_bounds
from ...keywords import checked_keywords
from .primitive import bind
from .program import Program

KEPT_PROGRAMS = 64  #: of one function, each for one signature

#: what JAX takes for an array
_ARRAYS = (jax.Array, np.ndarray, np.generic)


class JaxFunction:
    """A function of te tensors as a function of JAX arrays.

    It is traced once for each signature of shapes and dtypes. Arguments and results are arrays in
    pytrees, and numbers take the dtype of the arrays in the call. All transforms of JAX apply, in
    any order: derivatives, transposes and batches are programs of te tensors as well. Make
    instances with `function`.

    Attributes
    ----------
    function : callable
        The function of te tensors.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function) or is_tensor(function):
            raise InvalidArgumentError(
                f"expected a function of te tensors, got {type(function).__name__}"
            )
        self.function = function
        self._programs: OrderedDict[Hashable, tuple[Program, Any]] = OrderedDict()
        update_wrapper(self, function, updated=())

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        leaves, form = jax.tree.flatten((args, kwargs))
        arrays = _arrays(leaves, described(self.function))
        key = form, tuple((tuple(array.shape), array.dtype) for array in arrays)
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = self._traced(form, arrays, leaves)
            if len(self._programs) > KEPT_PROGRAMS:
                self._programs.popitem(last=False)
        program, results = found
        return jax.tree.unflatten(results, bind(*arrays, program=program))

    def _traced(self, form: Any, arrays: Sequence[Any], leaves: Sequence[Any]) -> Any:
        name = described(self.function)
        for array in arrays:
            if not all(isinstance(dim, int) for dim in array.shape):
                raise InvalidArgumentError(
                    f"{name} is called with shape {array.shape}: jax.export is not supported, as "
                    "the code is in this process only; export a library with "
                    "CompiledFunction.export"
                )
        paths = [
            jax.tree_util.keystr(path, simple=True, separator="_")
            for path, _ in jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(form, leaves))[0]
        ]
        names = [path.replace("0_", "argument", 1) for path in paths]
        specs = [(array.shape, np.dtype(array.dtype).name) for array in arrays]
        inputs = inputs_of(specs, names)
        args, kwargs = jax.tree.unflatten(form, inputs)
        outputs, around = jax.tree.flatten(called(self.function, *args, **kwargs))
        for output in outputs:
            if not is_tensor(output):
                raise InvalidArgumentError(
                    f"{name} returned {type(output).__name__}: it must return te.Tensors, alone or "
                    "in pytrees"
                )
        if not outputs:
            raise InvalidArgumentError(f"{name} returned no te.Tensor")
        refuse_reads_out_of_bounds(Graph(outputs).ops)
        return Program.of(inputs, outputs), around

    def __repr__(self) -> str:
        return f"<JaxFunction {described(self.function)}>"


def _integers() -> Any:
    """The range of JAX's own integers, of 64 bits if it has them."""
    return jax.numpy.iinfo(jax.dtypes.canonicalize_dtype("int64"))


def _fits(number: int) -> bool:
    limits = _integers()
    return int(limits.min) <= number <= int(limits.max)


def _arrays(leaves: Sequence[Any], name: str) -> list[Any]:
    """JAX arrays or tracers; numbers take the floating point dtype of the first array."""
    numbers = (bool, int, float)
    arrays = [leaf for leaf in leaves if isinstance(leaf, _ARRAYS)]
    for array in arrays:
        refuse_dtype(str(array.dtype), f"an argument of {name}")
    floats = [a.dtype for a in arrays if jax.numpy.issubdtype(a.dtype, jax.numpy.floating)]
    found = []
    for leaf in leaves:
        if type(leaf) is float and floats:
            found.append(jax.numpy.asarray(leaf, floats[0]))
        elif type(leaf) is int and not _fits(leaf):
            raise InvalidArgumentError(
                f"{name} is called with an integer beyond {_integers().dtype}: pass an array"
            )
        elif isinstance(leaf, _ARRAYS) or type(leaf) in numbers:
            found.append(leaf if isinstance(leaf, jax.Array) else jax.numpy.asarray(leaf))
        else:
            raise InvalidArgumentError(
                f"{name} is called with {type(leaf).__name__}: arguments must be arrays and "
                "numbers in pytrees; bind others beforehand, for instance with functools.partial"
            )
    return found


@checked_keywords
def function(te_function: Callable[..., Any]) -> JaxFunction:
    """Turn a function of te tensors into a function of JAX arrays.

    Parameters
    ----------
    te_function : callable
        A function from te tensors to te tensors, in pytrees.

    Returns
    -------
    JaxFunction
        A function that works under `jax.jit`, `grad`, `jvp`, `vjp`, `linearize`, `hessian`, `vmap`,
        `lax.scan`, `checkpoint` and `shard_map`, to any order, on CPUs.

    Raises
    ------
    InvalidArgumentError
        In the call: if an argument is not an array, a result is not a tensor, or TVM rejects the
        function.
    NotDifferentiableError
        In a derivative: if a stage has none.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from tvm import topi
    >>> from tvm_autodiff.interop.jax import function
    >>> cube = function(lambda x: x * x * x)
    >>> float(jax.grad(jax.grad(jax.jit(cube)))(2.0))
    12.0
    >>> jax.vmap(cube)(jnp.arange(3.0)).tolist()
    [0.0, 1.0, 8.0]
    """
    return JaxFunction(te_function)
