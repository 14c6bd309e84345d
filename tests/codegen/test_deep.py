"""`run_deep`: a large stack, results and exceptions passed on, the process's setting restored."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from tvm import te

from tvm_autodiff import build
from tvm_autodiff.codegen.deep import raised_while_waiting, run_deep


def test_result_and_arguments():
    assert run_deep(lambda a, b: (a, b), 1, b=2) == (1, 2)


def test_exception():
    with pytest.raises(ZeroDivisionError):
        run_deep(lambda: 1 // 0)


def test_an_exception_of_the_call_is_not_one_of_a_signal():
    with pytest.raises(ZeroDivisionError) as caught:
        run_deep(lambda: 1 // 0)
    assert not raised_while_waiting(caught.value)


def test_nested_call_stays_in_its_thread():
    def outer() -> tuple[int, int]:
        return threading.get_ident(), run_deep(threading.get_ident)

    first, second = run_deep(outer)
    assert first == second != threading.get_ident()


def test_stack_size_is_restored():
    before = threading.stack_size()
    run_deep(lambda: None)
    assert threading.stack_size() == before


def test_an_interrupt_ends_the_call():
    """Ctrl-C arrives while the main thread waits for the other one."""
    started, steps, end = threading.Event(), [0], time.perf_counter() + 30.0

    def endless() -> None:
        started.set()
        while time.perf_counter() < end:
            steps[0] += 1

    def interrupt() -> None:
        started.wait()
        time.sleep(0.2)  # until the main thread waits
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may ignore it
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            run_deep(endless)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.perf_counter() < end
    assert not [one for one in threading.enumerate() if one.name == "deep-stack"]


class TimeIsUpError(Exception):
    """What a caller's handler of a signal raises."""


# Python drops what is raised in a callback of a weak reference: then the timer ends the build later
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_handler_of_a_signal_raises_reaches_the_caller_of_a_build():
    """As itself, not as a fault of the build."""
    x = te.placeholder((4,), name="x")
    y = x
    for _ in range(300):  # a build of some seconds
        y = te.compute((4,), lambda i: te.sin(y[i]) + y[3 - i], name="y")  # noqa: B023

    def end(number, frame):
        raise TimeIsUpError

    before = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.5)
        with pytest.raises(TimeIsUpError):
            build(x, y, cache=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
