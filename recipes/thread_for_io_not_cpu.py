"""Give threads what waits, and processes what computes: one thread at a time runs Python.

A thread needs the GIL for each step of Python code. It gives it up in calls that wait,
and in some that compute in C (hashlib, on large data). Pure Python in N threads takes
turns on one core, and the rest of the program waits for its turn as well.

Scope: a regular expression keeps the GIL, too. On a free-threaded build threads do
    compute (unproven; sys._is_gil_enabled() tells, from 3.13 on).
    InterpreterPoolExecutor (3.14) has a GIL for each worker. Stated earlier:
    python-async-best-practices, `async-no-blocking-event-loop`.
Symptom: eight threads take as long as one. They use one core. Or a server answers late
    while a thread computes.
Look for: ThreadPoolExecutor or Thread around loops, parsing, regular expressions.
Sources: https://docs.python.org/3/glossary.html#term-global-interpreter-lock
    https://github.com/hedronvision/bazel-compile-commands-extractor/issues/250
"""

import hashlib
import os
import re
import sys
from concurrent import futures
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier, Event

from kit import broken, check, fixed, leaves, main, raises, returns


def compute(told, steps):
    return any(told() for _ in range(steps))


@broken(returns(False), free_threaded=returns(True))
def nobody_tells_a_thread():
    sys.setswitchinterval(20)  # else they take turns, which is no faster
    told = Event()
    with ThreadPoolExecutor(1) as pool:
        computing = pool.submit(compute, told.is_set, 10**5)
        told.set()
        return computing.result()


@fixed(returns(True) & leaves(files=1))
def main_tells_a_process():
    told = Path("told")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        computing = pool.submit(compute, told.exists, 10**9)
        told.touch()
        return computing.result()


def compute_until(mine, other):
    mine.touch()
    return compute(other.exists, 10**9)


@check(returns([True, True]) & leaves(files=2))
def two_processes_compute_at_once():
    one, two = Path("one"), Path("two")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return list(pool.map(compute_until, [one, two], [two, one]))


def is_told_between(work, times):
    """Whether main has a turn while a thread calls work() so many times."""
    sys.setswitchinterval(20)
    told = Event()
    with ThreadPoolExecutor(1) as pool:
        computing = pool.submit(lambda: any(told.is_set() or work() for _ in range(times)))
        told.set()
        return computing.result()


@check(returns(False), free_threaded=returns(True))
def a_regular_expression_keeps_the_gil():
    bad = re.compile("(a+)+b")
    return is_told_between(lambda: bad.match("a" * 16), times=10)


@check(returns(True))
def hashlib_lets_others_run():
    block = bytes(1 << 20)
    return is_told_between(lambda: hashlib.sha256(block) is None, times=10**9)


@check(returns(b"."))
def read_lets_others_run():
    sys.setswitchinterval(20)
    reader, writer = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(os.read, reader, 1)
        os.write(writer, b".")
        return reading.result()


@check(returns([0, 1, 2, 3, 4]))
def five_threads_wait_at_once():
    together = Barrier(5)
    with ThreadPoolExecutor(5) as pool:
        return sorted(pool.map(lambda _: together.wait(), range(5)))


@check(returns(True), since=(3, 13), before=raises(AttributeError, "'_is_gil_enabled'"), free_threaded=returns(False))
def python_tells_whether_there_is_a_gil():
    return sys._is_gil_enabled()


@check(returns(1), since=(3, 14), before=raises(AttributeError, "InterpreterPoolExecutor"))
def interpreters_are_a_pool_too():
    with futures.InterpreterPoolExecutor(1) as pool:
        return pool.submit(abs, -1).result()


if __name__ == "__main__":
    main()
