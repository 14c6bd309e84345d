"""The distributions: what they hold, and that each is enough to use the package."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.processes import without_torch

ROOT = Path(__file__).parent.parent
GRADIENT = """
from tvm import te
import tvm_autodiff as ad

x = te.placeholder((6,), name="x")
y = te.compute((3,), lambda i: x[2 * i], name="y")
print(ad.__file__)
print(ad.show(ad.differentiate(y, [x], te.placeholder((3,), name="h"))))
"""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with a wheel, made of the source distribution, and that distribution."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder / "source", filter="data")
    [source] = (folder / "source").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_package_alone(built):
    [wheel] = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tvm_autodiff"}
    package = ROOT / "tvm_autodiff"
    files = {str(path.relative_to(ROOT)) for path in package.rglob("*") if path.suffix != ".pyc"}
    files = {name for name in files if (ROOT / name).is_file()}
    assert {name for name in names if name.startswith("tvm_autodiff/")} == files
    assert "tvm_autodiff/py.typed" in files


@pytest.mark.slow
def test_the_source_holds_what_tests_need(built):
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    for wanted in ("pyproject.toml", "README.md", "LICENSE", "tests/conftest.py", "Makefile"):
        assert wanted in names
    assert not [name for name in names if ".venv" in name or "__pycache__" in name]


@pytest.mark.slow
def test_the_wheel_alone_differentiates(built, tmp_path):
    """In an empty environment; the packages that it needs are those of this one, by a path."""
    [wheel] = built.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", "empty", cwd=tmp_path)
    [python] = tmp_path.glob("empty/bin/python")
    install = ("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    run(sys.executable, *install, wheel, cwd=tmp_path)
    needed = f"import sys\nsys.path.append({sysconfig.get_path('purelib')!r})\n"
    script = tmp_path / "first.py"
    script.write_text(needed + GRADIENT)
    text = run(python, "-P", script, cwd=tmp_path, env=without_torch())
    assert text.startswith(str(tmp_path / "empty"))
    assert "dx[i0] = if i0%2 == 0 then h[i0//2] else 0.0" in text


@pytest.mark.slow
def test_a_script_beside_the_clone_finds_the_package(tmp_path):
    """Where a folder of the package's name lies beside it, as a clone does."""
    (tmp_path / "tvm_autodiff" / "tests").mkdir(parents=True)
    script = tmp_path / "first.py"
    # the folder of the script is searched first, then what an editable install adds
    script.write_text(f"import sys\nsys.path.append({str(ROOT)!r})\n{GRADIENT}")
    text = run(sys.executable, script, cwd=tmp_path, env=without_torch())
    assert text.startswith(str(ROOT / "tvm_autodiff"))


def test_an_editable_install_is_a_path(tmp_path):
    from hatchling.builders.wheel import WheelBuilder

    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["editable"])
    archive = zipfile.ZipFile(wheel)
    [path] = [name for name in archive.namelist() if name.endswith(".pth")]
    assert archive.read(path).decode().strip() == str(ROOT)


LAZY = """
import sys, types
import tvm_autodiff as ad

frameworks = {"torch", "jax", "sklearn", "scipy", "matplotlib", "tqdm", "IPython", "pytest"}
ours = {name for name in sys.modules if name.startswith("tvm_autodiff")}
heavy = {"tvm", "numpy", "sympy", *frameworks} & set(sys.modules)
assert (ours, heavy) == ({"tvm_autodiff"}, set()), (ours, heavy)
assert set(ad.__all__) <= set(dir(ad))

import tvm  # which asks for some of them itself
asked = set()


class Noted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        asked.add(name.partition(".")[0])


sys.meta_path.insert(0, Noted)
import tvm_autodiff.stage_text  # before the name that it defines
for name in ad.__all__:
    value = getattr(ad, name)
    assert isinstance(value, types.ModuleType) == (name == "domain"), name
assert not asked & {"sympy", *frameworks}, asked
for name in ("nothing", "diferentiate"):
    try:
        getattr(ad, name)
    except AttributeError as error:
        assert name in str(error)
        assert ("did you mean 'differentiate'" in str(error)) == (name == "diferentiate")
    else:
        raise AssertionError(name)
assert ad.interop.relax.build
"""


@pytest.mark.slow
def test_the_import_loads_nothing_and_names_load_no_framework(tmp_path):
    run(sys.executable, "-c", LAZY, cwd=tmp_path, env=without_torch())
