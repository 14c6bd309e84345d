"""Which files doctests are looked for in: those of a bridge where its framework is installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["tvm_autodiff/interop/torch"]
