"""Cancel what is queued when a task fails; `with` first runs all of it, whatever happened.

Leaving `with` waits for every task, also for those still queued. A failure, Ctrl-C or
the end of result(timeout) in its block shows only after that, or never.

Scope: not needed where all tasks are short. What runs goes on, and exit waits for it:
    tell it to stop (`STOP`), or use processes (`proc-kill-a-stuck-worker`). map()
    cancels, but fails in order. Up to 3.10 this TimeoutError is not the builtin one.
Symptom: a task failed, and the program goes on. Or Ctrl-C was pressed. Or a timeout of
    a second is raised after a minute.
Look for: result() or as_completed() in the `with` block of an executor;
    result(timeout).
Sources: https://docs.python.org/3/library/concurrent.futures.html
    https://github.com/marin-community/marin/pull/2769
"""

import concurrent.futures
import contextlib
import signal
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from threading import Event, main_thread

from kit import broken, check, fixed, hangs, main, raises, returns

TIMEOUT = concurrent.futures.TimeoutError
STOP = Event()
BEGUN = []


def work(number):
    return STOP.wait() if number else int("ten")


@broken(hangs(at="in futures", until=(3, 9)) | hangs(at="with Thread", since=(3, 10)))
def leave_with():
    with ThreadPoolExecutor(max_workers=2) as pool:
        futures = [pool.submit(work, number) for number in range(100)]
        return [future.result() for future in futures]


def run_all(function, items, workers, timeout=None):
    pool = ThreadPoolExecutor(workers)
    try:
        futures = [pool.submit(function, item) for item in items]
        for future in as_completed(futures, timeout):
            future.result()
        return [future.result() for future in futures]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@fixed(raises(ValueError, "invalid literal for int() with base 10: 'ten'"))
def raise_the_first_failure():
    try:
        return run_all(work, range(100), workers=2)
    finally:
        STOP.set()


def begin(number):
    BEGUN.append(number)
    return work(number)


@broken(returns(100))
def with_runs_what_is_queued():
    STOP.set()
    with contextlib.suppress(ValueError), ThreadPoolExecutor(max_workers=2) as pool:
        for future in [pool.submit(begin, number) for number in range(100)]:
            future.result()
    return len(BEGUN)


@fixed(returns(True))
def no_more_than_those_that_ran_begin():
    with contextlib.suppress(ValueError):
        run_all(begin, range(100), workers=2)
    STOP.set()
    return len(BEGUN) <= 3


@check(returns(True))
def map_cancels_too():
    with contextlib.suppress(ValueError), ThreadPoolExecutor(max_workers=2) as pool:
        try:
            list(pool.map(begin, range(100)))
        finally:
            STOP.set()
    return len(BEGUN) <= 3


@check(returns([1, 2, 3]))
def results_come_in_order():
    return run_all(abs, [-1, -2, -3], workers=2)


@broken(hangs(at="pool"))
def timeout_inside_with():
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(STOP.wait).result(timeout=0.1)


@fixed(raises(TIMEOUT, "unfinished", until=(3, 10)) | raises(TimeoutError, "unfinished", since=(3, 11)))
def timeout_of_all():
    try:
        return run_all(work, [1, 2], workers=1, timeout=0.1)
    finally:
        STOP.set()


@broken(hangs(at="pool"))
def interrupted_inside_with():
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(STOP.wait)
        signal.raise_signal(signal.SIGINT)  # Ctrl-C, while the pool is busy


def press_ctrl_c(number):
    if number == 0:
        return signal.pthread_kill(main_thread().ident, signal.SIGINT)
    return STOP.wait()


@fixed(raises(KeyboardInterrupt, ""), posix="a signal for one thread")
def interrupted():
    try:
        return run_all(press_ctrl_c, range(100), workers=2)
    finally:
        STOP.set()


@check(hangs(at="STOP.wait()"))
def exit_waits_for_what_runs():
    with contextlib.suppress(ValueError):
        run_all(work, range(100), workers=2)


@check(returns((5, True)))
def only_what_is_queued_is_cancelled():
    pool, begun = ThreadPoolExecutor(max_workers=1), Event()
    runs = pool.submit(lambda: (begun.set(), STOP.wait()))
    queued = [pool.submit(abs, -1) for _ in range(5)]
    begun.wait()
    pool.shutdown(wait=False, cancel_futures=True)
    answer = sum(future.cancelled() for future in queued), runs.running()
    STOP.set()
    return answer


@check(returns(False), posix="signal.pause")
def a_process_pool_has_one_more_beyond_cancelling():
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    futures = [pool.submit(signal.pause) for _ in range(5)]
    while not futures[1].running():
        time.sleep(0)
    cancelled = futures[1].cancel()
    for process in pool._processes.values():
        process.kill()
    return cancelled


if __name__ == "__main__":
    main()
