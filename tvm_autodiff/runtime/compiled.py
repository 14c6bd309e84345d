"""`CompiledFunction`: calls with arrays of any framework, source, memory, profile and export.

It wraps a compiled TVM module whose ``main`` takes inputs followed by outputs. It checks arguments,
allocates results of the caller's array kind, and uses the requested number of threads.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..codegen.deep import run_deep
from ..codegen.host.call_check import OVERLAP
from ..codegen.host.direct_calls import ALL_LAUNCHES
from ..errors import CallError, InvalidArgumentError, LoweringError
from .arrays import Array, copy_of, is_torch_type, needs_checks
from .calls.arguments import CheckedArguments
from .calls.call_sizes import carriers
from .calls.native_call import NativeCall, native_call
from .calls.results import QuickCall, quick_call
from .calls.sized_calls import SizedCalls
from .files.export import Standalone, exportable_path, for_arrays_alone, linked, write
from .files.host import check_host
from .files.manifest import Manifest
from .memory import Memory, memory_of
from .modules import machine_on, modules_in
from .profile import Profile, profile_of, profile_of_launches
from .tensors import cpu
from .threads import use_threads
from .unpickled import Unpickled

_Types = tuple[type, ...]


class CompiledFunction(CheckedArguments, Unpickled):
    """A compiled tensor program that is called with arrays.

    It takes numpy, TVM, PyTorch and JAX arrays and anything with DLPack, in any combination and
    without copies. It returns new arrays of the framework of the first argument: a list, or one
    array if the function was built for a single tensor. ``out=`` passes arrays to write into.
    Inputs with ``updates`` are written in place. Concurrent calls from several Python threads are
    safe if they write different arrays.

    Attributes
    ----------
    signature : Signature
        Names, shapes and dtypes of arguments and results.
    num_threads : int
        The number of CPU threads that the kernels use.
    notice : str or None
        The text of `build`'s warning about slow stages.
    from_cache : bool
        Whether `build` loaded the program from the cache instead of compiling it.
    """

    from_cache = False

    def __init__(
        self,
        executable: Any,
        manifest: Manifest,
        num_threads: int,
        *,
        code: bytes | None = None,
        recompile: Callable[[], Any] | None = None,
        standalone: Standalone | None = None,
    ) -> None:
        super().__init__(manifest)
        signature = manifest.signature
        self.num_threads = num_threads
        self._count, self._single = len(signature.inputs), signature.single
        self._executable = executable
        self._code = code  # the shared library, where there is one
        self._recompile, self._standalone = recompile, standalone  # modules with their source
        self._parallel = manifest.parallel  # whether any kernel was scheduled for several threads
        #: whether `main` returns what is wrong with arrays
        self._direct = manifest.workspace is not None or manifest.sizes is not None
        #: the inputs whose shapes select how a call of symbolic sizes is made
        self._carriers = None if manifest.uses_vm else carriers(signature)
        self._machines = threading.local()  # machines and tables serve one call at a time
        self._calls = SizedCalls(manifest)
        self._shared: Callable[..., Any] | None = None
        self._is_code = False
        #: array types → how they are passed, or None if such arrays need more than a call; for
        #: all types so far, and for the last ones
        self._quick: dict[_Types, QuickCall | None] = {}
        self._last: tuple[_Types | None, QuickCall | None, bool] = (None, None, False)

    def __call__(
        self, /, *arrays: Array, out: Sequence[Array] | Array | None = None, **named: Array
    ) -> Any:
        """Run the program.

        Parameters
        ----------
        *arrays
            One contiguous array for each input, of its shape and dtype; numbers for inputs of rank
            0. Inputs with an update are written.
        **named
            Further inputs by their names in the signature, in any order. An input named ``out``
            must be passed by position.
        out : sequence of arrays or array, optional
            Arrays for the results, one for each output, which are also returned. An array that is
            written must not share memory with another one of the call.

        Raises
        ------
        CallError
            If the number of arrays, or the rank, shape, dtype, layout or device of one, does not
            match the signature; if a written array shares memory with another or is read-only; or
            if a name is unknown, repeated or ambiguous.

        Examples
        --------
        >>> import numpy as np
        >>> from tvm import te
        >>> from tvm_autodiff import build
        >>> a, b = te.placeholder((2,), name="a"), te.placeholder((2,), name="b")
        >>> power = build([a, b], te.compute((2,), lambda i: a[i] * a[i] * b[i], name="c"))
        >>> power(b=np.ones(2, "float32"), a=np.full(2, 3, "float32"))
        array([9., 9.], dtype=float32)
        """
        if named:
            arrays = self.in_order(arrays, named)
        listed: Sequence[Array] = ()
        types = tuple(map(type, arrays))
        if out is not None:
            listed = out if isinstance(out, (list, tuple)) else (out,)
            types += tuple(map(type, listed))
        last, quick, differentiable = self._last
        if types != last:
            if types not in self._quick:
                self._quick[types] = self._new_quick([*arrays, *listed])
            quick, differentiable = self._quick[types], any(map(is_torch_type, types))
            self._last, last = (types, quick, differentiable), types
        refused = differentiable and any(map(needs_checks, (*arrays, *listed)))
        if quick is None or len(arrays) != self._count or refused:
            return self._checked_call(arrays, out)
        function = self._shared
        if self._carriers is not None:
            call = self._calls.known(last, arrays)
            if call is None:
                return self._first_call(last, arrays, out)
            quick, function = call
        makers, views = quick
        results = list(listed)
        if out is None:  # a comprehension costs as much as the array
            results = [makers[0]()] if len(makers) == 1 else [make() for make in makers]
        if not self._direct and (out is not None or self._manifest.updated):
            self._refuse_overlap(arrays, results, out is not None)
        if self._parallel:
            use_threads(self.num_threads)
        try:
            # shapes, dtypes and layout are checked by `main` before anything is written
            passed = [*arrays, *results]
            for place, view in views:
                passed[place] = view(passed[place])
            wrong = (function or self._function())(*passed)
        except Exception as failure:
            return self._checked_call(arrays, out, failure)
        if self._direct and wrong:
            return self._checked_call(arrays, out)
        return results[0] if self._single else results

    def _new_quick(self, arrays: Sequence[Array]) -> QuickCall | None:
        """How arrays, including results, are passed without checks; empty if that depends on sizes.
        """
        signature = self.signature
        if signature.static:
            updated = self._manifest.updated
            return quick_call(arrays, signature.inputs, signature.outputs, updated)
        if self._carriers is None or len(arrays) < self._count:
            return None
        known = all(hasattr(arrays[number], "shape") for number in self._carriers)
        return QuickCall([], []) if known else None

    def _first_call(self, types: _Types, arrays: Sequence[Array], out: Any) -> Any:
        """A call with all checks, after which calls of these sizes leave them to `main`."""
        result = self._checked_call(arrays, out)
        listed = () if out is None else out if isinstance(out, (list, tuple)) else (out,)
        self._calls.remember(types, arrays, listed, self._function_for(arrays))
        return result

    def _checked_call(
        self, arrays: Sequence[Array], out: Any, failure: Exception | None = None
    ) -> Any:
        """A call with all checks; after a `failure` of the quick call, to find the reason."""
        signature = self.signature
        arguments, results, kinds = self._bound(arrays, out)
        given = [*arrays, *results]
        if failure is not None and all(a is b for a, b in zip(given, arguments, strict=True)):
            raise failure
        if self._parallel:
            use_threads(self.num_threads)
        wrong = self._function_for(arrays)(*arguments)
        if self._direct and wrong:  # which the arrays do not determine
            raise CallError(
                "an array that is written shares memory with another: pass copies"
                if wrong == OVERLAP
                else "the memory of an array does not match its description, "
                f"for {signature}: pass copies"
            )
        if out is None:
            results = [kind.finish(result) for kind, result in zip(kinds, results, strict=True)]
        return results[0] if signature.single else results

    def _function_for(self, arrays: Sequence[Array]) -> Callable[..., Any]:
        """The raw function for the sizes of arrays that have been checked."""
        main = self._function()
        return main if self._manifest.sizes is None else self._calls.function(main, arrays)

    def _function(self) -> Callable[..., Any]:
        if self._shared is not None:
            return self._shared
        function = getattr(self._machines, "main", None)
        if function is None:
            # the first call makes LLVM generate machine code, which may need a larger stack
            make = self._new_function
            function = self._machines.main = make() if self._is_code else run_deep(make)
            self._is_code = True
        return function

    def _new_function(self) -> Callable[..., Any]:
        """The raw function of one thread, or of all threads where it has no state."""
        check_host(self._manifest)
        if self._manifest.uses_vm:
            return machine_on(self._executable, cpu())["main"]
        main = self._executable["main"]
        if self._manifest.workspace is not None:
            return functools.partial(main, ALL_LAUNCHES, *self._calls.in_front(()))
        self._shared = main
        return main

    def _native(self) -> NativeCall:
        """How machine code calls the program."""
        check_host(self._manifest)
        return run_deep(native_call, self._executable, self._manifest, self.num_threads)

    def _divide_by(self, launch: int) -> None:
        """Divide loops with the function at an address, if the sizes of the program are known."""
        if self._manifest.workspace is not None and self._parallel:
            self._native().exchange(launch)

    def memory(self, **sizes: int) -> Memory:
        """The memory that a call uses.

        Parameters
        ----------
        **sizes : int
            Values of the symbols in shapes.

        Returns
        -------
        Memory
            Bytes of inputs, outputs and temporaries, and one row for each; prints as a table.

        Raises
        ------
        InvalidArgumentError
            If a symbol has no value.

        Examples
        --------
        >>> from tvm import te
        >>> from tvm_autodiff import build
        >>> A, k = te.placeholder((8, 8), name="A"), te.reduce_axis((0, 8), "k")
        >>> B = te.compute((8, 8), lambda i, j: te.sum(A[i, k] * A[j, k], axis=k), name="B")
        >>> C = te.compute((8, 8), lambda i, j: B[7 - i, 7 - j], name="C")
        >>> print(build(A, C).memory())
        256  input          A
        256  output         C
        256  temporary      B
        768  bytes: 256 in, 256 out, 256 between
        """
        return memory_of(self._manifest, sizes)

    def profile(self, *arrays: Array, repeats: int = 20, **named: Array) -> Profile:
        """Time each kernel of a call.

        Parameters
        ----------
        *arrays, **named
            The arguments of a call. Arguments with an update are copied first.
        repeats : int
            The number of calls over which medians are taken.

        Returns
        -------
        Profile
            One row for each kernel: time, schedule rule, rates; prints as a table.

        Raises
        ------
        CallError
            As for a call.

        Examples
        --------
        >>> import numpy as np
        >>> from tvm import te
        >>> from tvm_autodiff import build
        >>> A = te.placeholder((1000,), name="A")
        >>> f = build(A, te.compute((1000,), lambda i: A[i] * 2.0, name="B"))
        >>> [kernel] = f.profile(np.ones(1000, "float32")).kernels
        >>> kernel.name, kernel.rule, kernel.operations, kernel.traffic
        ('B', 'elementwise', 1000, 8000)
        """
        if named:
            arrays = self.in_order(arrays, named)
        arguments, _, _ = self._bound(self._with_copies(arrays), None)
        if self._parallel:
            use_threads(self.num_threads)
        function, launches = self._function_for(arrays), self._manifest.launches
        if self._direct and len(launches) > 1:
            main, in_front = self._executable["main"], self._calls.in_front(arrays)
            numbers = self._calls.launches(arrays)
            chosen = {number: launches[number] for number in numbers if launches[number].name}
            return profile_of_launches(lambda n: main(n, *in_front, *arguments), chosen, repeats)
        machine = machine_on(self._executable, cpu()) if self._manifest.uses_vm else None
        return profile_of(function, machine, arguments, launches, repeats)

    def _with_copies(self, arrays: Sequence[Array]) -> list[Array]:
        """The arguments with copies of those that a call writes."""
        updated = self._manifest.updated
        return [copy_of(a) if number in updated else a for number, a in enumerate(arrays)]

    def source(self, language: str | None = None) -> str:
        """The generated code.

        Parameters
        ----------
        language : {"ll", "asm"}, optional
            LLVM IR (the default) or assembler.

        Raises
        ------
        InvalidArgumentError
            For any other language.
        LoweringError
            If the function was loaded from a file, which contains only machine code.
        """
        if language not in (None, "ll", "asm"):
            raise InvalidArgumentError(f"language must be 'll' or 'asm', got {language!r}")
        texts = [
            module.inspect_source(language or "ll")
            for module in self._modules_with_source()
            if module.kind == "llvm"
        ]
        if not texts:
            raise LoweringError(
                "a loaded function contains only machine code: call source() on the function that "
                "was built"
            )
        return "\n".join(texts)

    def _modules_with_source(self) -> list[Any]:
        """The modules of the program, rebuilt if they came from a cache."""
        root = self._executable if self._recompile is None else self._recompile()
        return modules_in(getattr(root, "mod", root))

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the function to a shared library that `load` reads, signature included.

        Its function ``run(*inputs, *outputs)`` needs no Python: tvm_ffi loads it, also from C++
        (docs/how-to/export.md). Programs for GPUs have none, nor have those with a symbolic size
        that are several kernels (see `profile`): they need TVM, and `load`.

        Parameters
        ----------
        path : path
            The file to write. Its name must end in ``.so`` (``.dylib``, ``.dll``).

        Raises
        ------
        InvalidArgumentError
            If the file cannot be written.
        LoweringError
            If there is no C compiler to link with.
        """
        target = exportable_path(path)
        if self._code is not None and self._recompile is None:  # from such a file
            write(target, self._code)
            return
        executable = self._executable if self._recompile is None else self._recompile()
        found = for_arrays_alone(executable, self._manifest, self._standalone)
        write(target, linked(*found, self.num_threads, target))

    def __repr__(self) -> str:
        return f"<CompiledFunction {self.signature}>"
