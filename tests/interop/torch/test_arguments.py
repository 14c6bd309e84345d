"""Bad input to functions on PyTorch's tensors: each an error that names what is wrong."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tvm import te  # noqa: E402

from tvm_autodiff import (  # noqa: E402
    CallError,
    InvalidArgumentError,
    UnknownKeywordError,
    build,
)
from tvm_autodiff.interop.torch import function  # noqa: E402

from . import programs  # noqa: E402

X, W = torch.ones(4, 3), torch.ones(3, 5)
ENERGY = function(programs.energy)



def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is a prototype
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch is about to remove them
        return torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)


CASES = {
    "no tensor returned": (lambda: function(lambda x: 3)(X), "returned int as result"),
    "nothing returned": (lambda: function(lambda x: None)(X), "returned None"),
    "no function": (lambda: function(3), "expected a function"),
    "a dtype without kernels": (lambda: ENERGY(X.to(torch.complex64), W), "dtype complex64"),
    "an array of numpy": (lambda: ENERGY(X.numpy(), W), "x is ndarray: arguments must be PyTorch"),
    "a text": (lambda: ENERGY("a", W), "x is str"),
    "a sparse tensor": (lambda: ENERGY(X.to_sparse(), W), "layout torch.sparse_coo"),
    "a nested tensor": (lambda: ENERGY(nested(), W), "x is a nested tensor.*to_padded_tensor"),
    "a quantized tensor": (lambda: ENERGY(quantized(), W), "x is quantized.*dequantize"),
    "a sparse tensor after a dense one": (
        lambda: (ENERGY(X, W), ENERGY(X.to_sparse(), W)),
        "layout torch.sparse_coo",
    ),
    "what to save": (lambda: function(programs.energy, save="some"), "save is 'some'"),
    "a negative budget": (lambda: function(programs.energy, save=-1), "save is -1"),
    "no such argument": (
        lambda: function(programs.energy, dynamic={"q": 0}),
        "names 'q', which is not an argument",
    ),
    "sizes that differ": (
        lambda: function(lambda x, y: x + y, dynamic={"x": (0,), "y": (0,)})(X[0], W[0]),
        "Incompatible broadcast dims: 3 and 5",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_name_what_is_wrong(name):
    call, text = CASES[name]
    with pytest.raises(InvalidArgumentError, match=text):
        call()


@pytest.mark.slow
def test_two_devices():
    with pytest.raises(CallError, match="x is on cpu and w on meta: move them to one device"):
        ENERGY(X, W.to("meta"))


def test_too_many_arguments():
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        ENERGY(X, W, X)


def test_an_unknown_option():
    with pytest.raises(UnknownKeywordError, match="did you mean 'save'"):
        function(programs.energy, saved="all")


def test_another_number_of_results_for_another_shape():
    made = function(lambda x: [x + 1.0] * int(x.shape[0]))
    made(torch.ones(2))
    with pytest.raises(InvalidArgumentError, match="returned .* at first, and"):
        made(torch.ones(3))


def test_integers_cannot_require_a_gradient():
    with pytest.raises(RuntimeError, match="floating point"):
        function(lambda x: x + 1)(torch.arange(3).requires_grad_())


def test_the_operator_itself_checks_shapes_without_values():
    ENERGY(X, W)
    [program] = ENERGY._programs.values()
    with pytest.raises(CallError, match="expected .*float32"):
        program.operator.op(X.double().to("meta"), W.to("meta"))
    with pytest.raises(CallError, match=r"got shape \(5, 3\)"):
        program.operator.op(torch.ones(5, 3, device="meta"), W.to("meta"))


def test_shapes_without_values():
    result = function(programs.pair)(X.to("meta"), W.to("meta"))
    assert {name: (t.device.type, tuple(t.shape)) for name, t in result.items()} == {
        "y": ("meta", (4, 5)),
        "s": ("meta", (4,)),
    }


def test_without_pytorch_the_import_names_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import tvm_autodiff\n"
        "try:\n    import tvm_autodiff.interop.torch\n"
        "except ImportError as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingFrameworkError")
    assert "pip install 'tvm_autodiff[torch]'" in done.stdout


def test_compiled_functions_refuse_what_autograd_records():
    x = te.placeholder((4,), name="x")
    double = build([x], te.compute((4,), lambda i: x[i] * 2.0, name="y"))
    weights = torch.ones(4, requires_grad=True)
    assert double(weights.detach()).tolist() == [2.0] * 4
    for _ in range(2):
        with pytest.raises(CallError, match="'x' requires a gradient.*interop.torch.function"):
            double(weights)
    with torch.no_grad():
        assert double(weights).tolist() == [2.0] * 4
