"""Rewrites LLVM IR so that AddressSanitizer's runtime library checks its memory accesses.

Each load and store gets a call in front of it. Local arrays move to the heap, where the library
puts red zones around them. LLVM's own pass does the same, but TVM has no way to run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BITS = {"float": 32, "double": 64, "half": 16, "bfloat": 16, "ptr": 64}

#: where the address of an access begins and what is accessed, by instruction; the address is the
#: last operand of all but the exchanges
_LOAD = re.compile(r"= load (?:atomic |volatile )*(?P<type>.+?), ptr (?P<address>.+?), align")
_STORE = re.compile(r"^\s*store (?:atomic |volatile )*(?P<type>.+), ptr (?P<address>[^,]+?), align")
_ATOMIC = re.compile(
    r"= (?:atomicrmw \w+|cmpxchg(?: weak)?) ptr (?P<address>[^,]+), (?P<type>\S+) "
)
_LOCAL = re.compile(
    r"^(?P<made>\s*\S+ = )alloca (?P<type>[^,]+), i(?:32|64) (?P<count>\d+), align (?P<align>\d+)"
)
_TYPE = re.compile(r"<(?P<lanes>\d+) x (?P<element>\w+)>|(?P<scalar>\w+)")
#: accesses that are calls: of those, none is known how to check
_CALLED = re.compile(r"call .*@llvm\.(masked|vp|mem|experimental\.vp)[.\w]*")

#: what takes half of the time to load the code, and accesses nothing: places in the source, and
#: TVM's conversions of float16 where nothing calls them
_DEBUG = re.compile(r",? !dbg !\d+|^!llvm\.dbg\.cu = .*", re.MULTILINE)
_WEAK = re.compile(r"^define weak .*?@(?P<name>[\w.]+)\(.*?^}$", re.MULTILINE | re.DOTALL)

_DECLARED = """
declare void @__asan_loadN(i64, i64)
declare void @__asan_storeN(i64, i64)
declare ptr @memalign(i64, i64)
declare void @free(ptr)

define internal ptr @checked.allocate(i32, i32, i64 %bytes, i32, i32) {
  %memory = call ptr @memalign(i64 64, i64 %bytes)
  ret ptr %memory
}

define internal i32 @checked.free(i32, i32, ptr %memory) {
  call void @free(ptr %memory)
  ret i32 0
}
"""

#: TVM's functions for larger local arrays, and what takes their place
_WORKSPACE = {
    "@__TVMBackendAllocWorkspace": "@checked.allocate",
    "@__TVMBackendFreeWorkspace": "@checked.free",
}


class UncheckedAccessError(Exception):
    """An access that this module cannot check."""


def with_checks(ir: str) -> str:
    """The IR with a check before every load and store.

    Raises
    ------
    UncheckedAccessError
        An instruction accesses memory in a way that this module cannot check.
    """
    for unused in [m for m in _WEAK.finditer(ir) if ir.count(f"@{m['name']}(") == 1]:
        ir = ir.replace(unused[0], "")
    lines = _DEBUG.sub("", ir).splitlines()
    lines = [new for number, line in enumerate(lines) for new in _checked(line, number)]
    return "\n".join(lines) + _DECLARED


def _checked(line: str, number: int) -> Iterator[str]:
    """The line, preceded by its checks."""
    if "#dbg_" in line:  # a local array is none any more
        return
    local = _LOCAL.match(line)
    if local is not None:
        count = int(local["count"]) * _size_of(local["type"])
        yield f"{local['made']}call ptr @memalign(i64 {local['align']}, i64 {count})"
        return
    workspace = _LOAD.search(line)
    if workspace is not None and workspace["address"] in _WORKSPACE:
        result = line.split("=")[0]
        yield f"{result}= bitcast ptr {_WORKSPACE[workspace['address']]} to ptr"
        return
    if _CALLED.search(line):
        raise UncheckedAccessError(line)
    for pattern, kind in ((_LOAD, "load"), (_STORE, "store"), (_ATOMIC, "store")):
        found = pattern.search(line)
        if found is not None:
            address = f"%address.{number}"
            yield f"  {address} = ptrtoint ptr {found['address']} to i64"
            size = _size_of(found["type"])
            yield f"  call void @__asan_{kind}N(i64 {address}, i64 {size})"
            break
    else:
        if re.search(r"\b(load|store|atomicrmw|cmpxchg) ", line.split('"')[0]):
            raise UncheckedAccessError(line)
    yield line


def _size_of(type_: str) -> int:
    """The size in bytes of the type that a text begins with."""
    found = _TYPE.match(type_)
    if found is None:
        raise UncheckedAccessError(type_)
    lanes, element = int(found["lanes"] or 1), found["element"] or found["scalar"]
    bits = _BITS.get(element) or (int(element[1:]) if re.fullmatch(r"i\d+", element) else None)
    if bits is None:
        raise UncheckedAccessError(type_)
    return -(-lanes * bits // 8)
