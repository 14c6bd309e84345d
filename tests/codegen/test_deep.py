"""`run_deep`: a large stack, results and exceptions passed on, the process's setting restored."""

from __future__ import annotations

import threading

import pytest

from tvm_autodiff.codegen.deep import run_deep


def test_result_and_arguments():
    assert run_deep(lambda a, b: (a, b), 1, b=2) == (1, 2)


def test_exception():
    with pytest.raises(ZeroDivisionError):
        run_deep(lambda: 1 // 0)


def test_nested_call_stays_in_its_thread():
    def outer() -> tuple[int, int]:
        return threading.get_ident(), run_deep(threading.get_ident)

    first, second = run_deep(outer)
    assert first == second != threading.get_ident()


def test_stack_size_is_restored():
    before = threading.stack_size()
    run_deep(lambda: None)
    assert threading.stack_size() == before
