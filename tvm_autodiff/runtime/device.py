"""Compiled functions whose kernels run on a GPU.

They are called like a `CompiledFunction`, with arrays on the GPU, which are not copied, or on the
host, which are. Without a GPU everything works except the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm_ffi

from ..errors import CallError, LoweringError
from .arrays import Array, ArrayKind, kind_of, numpy_kind
from .calls.results import NumberOf, is_number
from .calls.signature import TensorSpec
from .compiled import CompiledFunction
from .device_arrays import (
    borrow_on_device,
    copy_to_device,
    copy_to_host,
    empty_on_device,
    gpu_of,
    stream_of,
)
from .modules import machine_on
from .profile import Profile, profile_of
from .tensors import empty, gpu


@dataclass
class _Call:
    """The state of one call."""

    device: Any
    sizes: dict[str, int]
    arguments: list[Any] = field(default_factory=list)
    #: kind, GPU tensor and host array of results that are copied back to the host
    copies: list[tuple[ArrayKind, Any, Array]] = field(default_factory=list)


class DeviceFunction(CompiledFunction):
    """A tensor program compiled for CUDA that is called with arrays.

    Arrays on the GPU (PyTorch, CuPy, JAX, TVM, anything with DLPack) are used in place, on the
    current stream of PyTorch or CuPy, and a call returns before they are written. Arrays on the
    host are copied. Results belong to the framework and device of the first argument: a call with
    numpy arrays returns numpy arrays.
    """

    _gpu = staticmethod(gpu)  #: the device of a number

    def __call__(
        self, *arrays: Array, out: Sequence[Array] | Array | None = None, **named: Array
    ) -> Any:
        """Run the program.

        Parameters
        ----------
        *arrays
            One contiguous array for each input, of its shape and dtype, on one GPU or on the host;
            numbers for inputs of rank 0.
        **named
            Further inputs by their names in the signature, in any order.
        out : sequence of arrays or array, optional
            Arrays for the results, one for each output, which are also returned.

        Raises
        ------
        CallError
            If there is no GPU, or the number of arrays, or the rank, shape, dtype, layout or device
            of one, does not match the signature.
        """
        if named:
            arrays = self.in_order(arrays, named)
        call, results, stream = self._prepared(arrays, out)
        self._run(call, stream)
        if call.copies:
            for kind, tensor, array in call.copies:
                copy_to_host(kind, tensor, array)
            if out is None:
                finish = call.copies[0][0].finish
                results = [finish(array) for array in results]
        return results[0] if self.signature.single else results

    def profile(self, *arrays: Array, repeats: int = 20, **named: Array) -> Profile:
        """Time each kernel of a call; the GPU finishes one before the next begins.

        Parameters
        ----------
        *arrays, **named
            The arguments of a call. Those with an update are copied first.
        repeats : int
            The number of calls over which medians are taken.
        """
        if named:
            arrays = self.in_order(arrays, named)
        call, _, _ = self._prepared(self._with_copies(arrays), None)
        machine = None
        if self._manifest.uses_vm:
            machine = machine_on(self._executable, call.device)
        function = self._function_on(call.device, 0)
        launches, wait = self._manifest.launches, call.device.sync
        return profile_of(function, machine, call.arguments, launches, repeats, wait)

    def _prepared(
        self, arrays: Sequence[Array], out: Sequence[Array] | Array | None
    ) -> tuple[_Call, list[Array], int]:
        """The arguments of the raw function, the results, and the caller's stream."""
        signature = self.signature
        signature.check_count(len(arrays))
        if not self._gpu(0).exist:
            raise CallError(
                "this function was built for CUDA, and there is no GPU that TVM can use here: "
                "build it with target=None to run it on the CPU"
            )
        results = None if out is None else self._listed(out)
        if results is not None and len(results) != len(signature.outputs):
            wanted = len(signature.outputs)
            raise CallError(f"out= must contain {wanted} arrays, got {len(results)}")
        sample = next((a for a in (*arrays, *(results or ())) if gpu_of(a) is not None), None)
        number = _one_gpu([*arrays, *(results or ())])
        call = _Call(self._gpu(number), {})
        for place, (array, spec) in enumerate(zip(arrays, signature.inputs, strict=True)):
            self._take(call, array, spec, place in self._manifest.updated)
        self._refuse_overlap(arrays, results or [], out is not None)
        if not signature.static:
            self._check_symbols(arrays, call.sizes)
        if results is None:
            first = next((array for array in arrays if kind_of(array) is not None), None)
            results = [self._new_result(call, first, spec) for spec in signature.outputs]
        else:
            for array, spec in zip(results, signature.outputs, strict=True):
                self._take_output(call, array, spec)
        return call, results, 0 if sample is None else stream_of(sample, number)

    def _take(self, call: _Call, array: Array, spec: TensorSpec, updated: bool) -> None:
        kind = kind_of(array)
        if updated and (kind is None or isinstance(array, np.generic)):
            raise CallError(f"argument {spec.name!r} is updated: pass an array, not a number")
        if is_number(array, spec):
            array = NumberOf(spec)(array)
            kind = numpy_kind()
        if kind is None:
            raise CallError(
                f"argument {spec.name!r} must be an array (numpy, TVM, torch, JAX or DLPack) of "
                f"{spec}, got {type(array).__name__}"
            )
        if isinstance(array, np.generic):
            array = np.asarray(array)
        if gpu_of(array) is None:
            self._check("argument", kind, array, spec, call.sizes, updated)
            if updated:
                kind.borrow(array, True)  # raises where it cannot be written
            call.arguments.append(copy_to_device(kind, array, call.device))
            if updated:
                call.copies.append((kind, call.arguments[-1], array))
        else:
            self._take_on_device(call, "argument", kind, array, spec)

    def _take_on_device(
        self, call: _Call, place: str, kind: ArrayKind, array: Array, spec: TensorSpec
    ) -> None:
        shape, dtype = kind.shape_dtype(array)
        self.signature.check_array(place, spec, shape, dtype, call.sizes)
        try:
            call.arguments.append(borrow_on_device(array))
        except CallError as error:
            raise CallError(f"{place} {spec.name!r} {error}") from None

    def _take_output(self, call: _Call, array: Array, spec: TensorSpec) -> None:
        kind = kind_of(array)
        if kind is None or isinstance(array, np.generic):
            raise CallError(
                f"output {spec.name!r} must be an array that can be written, "
                f"got {type(array).__name__}"
            )
        if gpu_of(array) is None:
            self._check("output", kind, array, spec, call.sizes, True)
            self._return_to_host(call, kind, array, spec)
        else:
            self._take_on_device(call, "output", kind, array, spec)

    def _new_result(self, call: _Call, first: Array | None, spec: TensorSpec) -> Array:
        shape = self._result_shape(spec, call.sizes)
        if first is not None and gpu_of(first) is not None:
            result = empty_on_device(first, shape, spec.dtype, call.device)
            call.arguments.append(borrow_on_device(result))
            return result
        kind = (kind_of(first) if first is not None else None) or numpy_kind()
        result = kind.empty(shape, spec.dtype)
        self._return_to_host(call, kind, result, spec)
        return result

    def _return_to_host(self, call: _Call, kind: ArrayKind, array: Array, spec: TensorSpec) -> None:
        shape = self._result_shape(spec, call.sizes)
        tensor = empty(tuple(shape), spec.dtype, call.device)
        call.arguments.append(tensor)
        call.copies.append((kind, tensor, array))

    def _run(self, call: _Call, stream: int) -> None:
        device = call.device
        if stream:
            device.sync()  # copies from the host run on CUDA's own stream
        with tvm_ffi.use_raw_stream(device, stream):
            self._function_on(device, stream)(*call.arguments)
            if call.copies:
                device.sync(stream or None)

    def _function_on(self, device: Any, stream: int) -> Callable[..., Any]:
        """The function for one GPU and stream, because streams do not share memory between kernels.
        """
        if not self._manifest.uses_vm:
            return self._function()
        key = f"main_{device.index}_{stream}"
        function = getattr(self._machines, key, None)
        if function is None:
            machine = machine_on(self._executable, device)
            function = machine["main"]
            setattr(self._machines, key, function)
        return function

    def source(self, language: str | None = None) -> str:
        """The generated code: CUDA C, or LLVM IR (``"ll"``) or assembler (``"asm"``) of the part
        that runs on the host.

        Raises
        ------
        LoweringError
            If the function was loaded from a file, which contains only machine code.
        """
        if language is not None:
            return super().source(language)
        texts = [m.inspect_source() for m in self._modules_with_source() if m.kind == "cuda"]
        if not texts:
            raise LoweringError(
                "a loaded function contains only machine code: "
                "call source() on the one that was built"
            )
        return "\n".join(texts)


def has_gpu() -> bool:
    """Whether there is a GPU that TVM can use."""
    return bool(gpu(0).exist)


def _one_gpu(arrays: Sequence[Array]) -> int:
    """The GPU of some arrays, or the first GPU if none is on a GPU; all must be on one GPU."""
    numbers = {number for array in arrays if (number := gpu_of(array)) is not None}
    if len(numbers) > 1:
        raise CallError(f"arrays are on GPUs {sorted(numbers)}: copy them to one")
    return next(iter(numbers), 0)
