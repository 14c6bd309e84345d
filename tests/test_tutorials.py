"""The tutorials, each run as a user runs it; what they print is read and held to its claims."""

from __future__ import annotations

import ast
import re
import runpy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
TUTORIALS = ROOT / "tutorials"
#: what imports PyTorch; where it is not installed, `step_time`, which train_digits uses, leaves it
#: out
IMPORT_TORCH = {"torch_operator.py", "step_time.py"}


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs a tutorial in an empty folder and returns what it prints.

    Not in a process of its own, most of whose time would be spent on imports.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(TUTORIALS))

    def run(script: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            runpy.run_path(str(TUTORIALS / script), run_name="__main__")
        return capfd.readouterr().out

    return run


def costs(text: str) -> list[tuple[str, int, int, int]]:
    """The rows of the tables of costs: name, iterations, multiplications, memory."""
    rows = re.findall(r"^(\w+) +(\d+) +(\d+) +(\d+)\b", text, re.MULTILINE)
    return [(name, *map(int, numbers)) for name, *numbers in rows]


def test_every_tutorial_is_run_here():
    scripts = {path.name for path in TUTORIALS.glob("*.py")}
    assert scripts == {
        "first_gradient.py",
        "fit_diffusion.py",
        "fit_ode.py",
        "jax_operator.py",
        "override_jacobian.py",
        "relax_operator.py",
        "schedule_and_tune.py",
        "sparse_jacobian.py",
        "step_time.py",
        "strided_convolution.py",
        "torch_operator.py",
        "train_digits.py",
        "train_rnn.py",
    }


def imported(tree: ast.AST) -> set[str]:
    """The first parts of the names of modules that a script imports, wherever it does."""
    nodes = list(ast.walk(tree))
    names = [a.name for node in nodes if isinstance(node, ast.Import) for a in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}


def test_few_tutorials_need_torch():
    scripts = {p.name: imported(ast.parse(p.read_text("utf-8"))) for p in TUTORIALS.glob("*.py")}
    assert {name for name, modules in scripts.items() if "torch" in modules} == IMPORT_TORCH


def test_schedule_and_tune(run):
    # a search takes most of the time: tests/schedule/tuning has some
    text = run("schedule_and_tune.py", "--trials", "0")
    slow, fast = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+) iterations\n", text))
    # distances, scores, and the gradients of each with respect to two tensors
    assert (slow, fast) == (512 * 128 * 32 * 64 * 4, 512 * 128 * (32 * 3 + 64 * 3))
    bounds = re.findall(r"iterations: (\d+) \(lower bound: (\d+)", text)
    assert len(bounds) == 4
    assert all(found == least for found, least in bounds)
    assert "plain loops: none" in text
    for kernel in ("distance", "scores", "dweights", "dx", "dcentres"):
        assert re.search(rf"contraction +{kernel}\b", text)
    assert "0 trials" in text
    assert "same results: True" in text


def test_first_gradient(run):
    text = run("first_gradient.py")
    # the gradients that a textbook gives for the matrix product and the transpose
    assert "dA[i0, i1] = Σ_{j<30} head[i0, j]*B[i1, j]" in text
    assert "dX[i0, i1] = head[i1, i0]" in text
    # every sum over all reads, and what is left of it
    work = [row[1] for row in costs(text)]
    assert work == [
        40 * 50 * 40 * 30 * 50,
        40 * 50 * 30,
        20 * 30 * 600,
        600,
        256 * 196 * 9,
        256 * 9,
    ]
    errors = [float(number) for number in re.findall(r"disagreement over all .*: (\S+)", text)]
    assert len(errors) == 3
    assert max(errors) < 1e-8
    for lesson in text.split("the first values")[1:]:
        numbers = re.findall(r"^    (?:before|after|differences) +(.*)$", lesson, re.MULTILINE)
        assert len(numbers) == 3
        assert len(set(numbers)) == 1


def test_override_jacobian(run):
    text = run("override_jacobian.py")
    assert "unflattened[n, c, y, x] = dcompute[n, (c*8 + y)*8 + x]" in text
    rows = costs(text)
    names = ["default", "manual", "override", "fdiff", "default", "override"]
    assert [row[0] for row in rows] == names
    manual, fdiff = rows[1][1:], rows[3][1:]
    assert manual == fdiff  # both leave all edges but one to the default rule
    assert rows[0][1] <= manual[0]  # the default is no worse than flatten by hand
    assert rows[5][1] < rows[4][1]  # the root by hand is better
    assert "compute → conv2d_nchw" in text
    differences = re.findall(r"^\w+ +\d+ +\d+ +\d+ +(\S+)$", text, re.MULTILINE)
    assert max(map(float, differences)) < 1e-5


def test_train_digits(run, tmp_path):
    text = run("train_digits.py", "--out", "pictures/digits.png")
    assert "1437 images to learn from, 360 to test on" in text
    accuracy = re.search(r"Test accuracy: (\S+)%", text)
    assert accuracy is not None
    assert float(accuracy[1]) >= 97
    assert re.search(r"dw2\[.*\] = Σ_\{nn<32, yy<8, xx<8\} head\[", text)
    assert re.search(r"tvm_autodiff +\d+\.\d+ ms", text)
    picture = tmp_path / "pictures" / "digits.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000


def test_fit_ode(run, tmp_path):
    text = run("fit_ode.py", "--out", "pictures/ode.png", "--iterations", "300")
    losses = [float(number) for number in re.findall(r"loss (\S+)", text)]
    assert losses[-1] < 0.05 < losses[0]
    # posterior means of B. Carpenter, Predator-prey population dynamics, Stan case studies, 2018
    published = {
        "birth of hares": 0.55,
        "hares eaten": 0.028,
        "death of lynxes": 0.80,
        "lynxes fed": 0.024,
    }
    for name, value in published.items():
        row = re.search(rf"^{name} +\S+ +(\S+)$", text, re.MULTILINE)
        assert row is not None
        assert float(row[1]) == pytest.approx(value, rel=0.15)
    assert (tmp_path / "pictures" / "ode.png").read_bytes().startswith(b"\x89PNG")


def test_train_rnn(run):
    text = run("train_rnn.py")
    accuracy = re.search(r"Test accuracy: (\S+)%", text)
    assert accuracy is not None
    assert float(accuracy[1]) >= 97


def number(pattern: str, text: str) -> float:
    """The number that a pattern finds; the pattern must occur once."""
    [found] = re.findall(pattern, text)
    return float(found)


def test_strided_convolution(run):
    text = run("strided_convolution.py")
    before, after = text.split("3. The solution")
    assert before.count("●") == 4  # two places, two reads each
    assert after.count("●") == 4
    assert "·" not in after
    assert "strategy: gather" in after
    assert number(r"from the loop that scatters: (\S+)", text) < 1e-12


def test_sparse_jacobian(run):
    text = run("sparse_jacobian.py", "--points", "400")
    assert "400 points: 1198 nonzeros" in text
    changes = [float(change) for change in re.findall(r"largest change (\S+)", text)]
    assert len(changes) < 8  # Newton's method converges quadratically
    assert changes[-1] < 1e-9
    error, spacing = re.findall(r"sin\(πx\): (\S+), grid spacing squared: (\S+)", text)[0]
    assert float(error) < float(spacing)


def test_fit_diffusion(run):
    text = run("fit_diffusion.py", "--iterations", "150")
    for half in ("left", "right"):
        true, found = re.findall(rf"^{half} +(\S+) +(\S+)$", text, re.MULTILINE)[0]
        assert float(found) == pytest.approx(float(true), rel=0.02)


def test_torch_operator(run):
    pytest.importorskip("torch")
    text = run("torch_operator.py")
    errors = [float(error) for error in re.findall(r"iteration +\d+  error (\S+)", text)]
    assert errors[-1] < errors[0] / 3
    change, predicted = re.findall(r"sum: (\S+), predicted by the gradient: (\S+)", text)[0]
    assert float(change) == pytest.approx(float(predicted), abs=0.02)


def test_jax_operator(run):
    pytest.importorskip("jax")
    text = run("jax_operator.py")
    assert "[-1.  2. -1.]" in text  # the stiffness of a chain of springs
    assert "gradients of two chains: (2, 8)" in text
    assert number(r"error of a length: (\S+)", text) < 1e-4


def test_relax_operator(run):
    text = run("relax_operator.py")
    assert "soft_threshold_gradient" in text
    ours, numpy = re.findall(r"loss (\S+), from numpy (\S+)", text)[0]
    assert float(ours) == pytest.approx(float(numpy), abs=1e-3)
    assert number(r"from the formula: (\S+)", text) < 1e-5


def test_train_digits_agrees_with_torch(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(TUTORIALS))
    import numpy as np
    import step_time
    import train_digits

    images, labels = next(train_digits.batches(train_digits.load_data(0), 32, seed=0))
    state = train_digits.start_weights(0)
    theirs = step_time.torch_step(images, labels, state, num_threads=1, rate=0.05)
    state += [np.zeros_like(weight) for weight in state]
    ours = train_digits.make_step(32, momentum=0.9)
    for _ in range(8):
        loss, _ = ours(images, labels, 0.05, *state)
        assert float(loss) == pytest.approx(theirs(), rel=1e-4)
