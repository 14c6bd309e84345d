"""Which files doctests are looked for in: those of a bridge where its framework is installed."""

from importlib.util import find_spec

import tvm_autodiff

collect_ignore = [] if find_spec("torch") else ["tvm_autodiff/interop/torch"]

# loads the modules in order: pytest imports a single file as an attribute of its package, where it
# would replace the function of the same name
for name in tvm_autodiff.__all__:
    getattr(tvm_autodiff, name)
