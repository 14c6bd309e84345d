"""Compiles the CUDA sources of programs with `nvcc`, where there is one; that needs no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

KERNEL = 'extern "C" __global__'  #: what the first kernel of a source begins with
NVCC = shutil.which("nvcc") or ""


def body_of(source: str) -> str:
    """The kernels without what TVM writes in front of them."""
    return source[source.index(KERNEL) :]


def compile_with_nvcc(sources: Mapping[str, str], arch: str = "sm_90") -> None:
    """Compile the kernels of some programs to PTX in one call, their names made different."""
    heads = [source[: source.index(KERNEL)] for source in sources.values()]
    includes = {line for head in heads for line in head.splitlines() if "#include" in line}
    text = [*sorted(includes), max(heads, key=len)]
    for number, source in enumerate(sources.values()):
        text.append(re.sub(r"\b(\w+_kernel(?:_\d+)?)\(", rf"p{number}_\1(", body_of(source)))
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder) / "kernels.cu", Path(folder) / "kernels.ptx"
        path.write_text("\n".join(text))
        # whether they compile does not depend on how well: that takes most of the time
        fast = ["-Xcicc", "-O0"]
        command = [NVCC, "-ptx", *fast, f"-arch={arch}", "-w", "-o", str(made), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        compiled = made.read_text()
    assert compiled.count(".visible .entry") == sum(
        source.count("__global__ void") // 2 for source in sources.values()
    )
