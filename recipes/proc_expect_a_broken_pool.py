"""Expect workers to die: catch BrokenExecutor and resubmit what is missing to a new pool.

A worker can be killed: no memory, a crash in C code. An executor then fails every
unfinished future and refuses new tasks. A multiprocessing.Pool starts another worker
and forgets the task: its get() waits for ever.

Scope: only for tasks that may run twice. Attempts are bounded: a task can be what kills
    its worker. An exception, sys.exit() too, breaks nothing. The new pool needs new
    locks: `proc-discard-after-kill`.
Symptom: A process in the process pool was terminated abruptly. Or: A child process
    terminated abruptly, the process pool is not usable anymore. Or Pool.map() never
    returns, often after the kernel's out-of-memory killer.
Look for: multiprocessing.Pool; an executor kept after an error; submit() outside of
    try.
Sources: https://docs.python.org/3/library/concurrent.futures.html
    https://github.com/python/cpython/issues/96062
"""

import os
import sys
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from concurrent.futures.thread import BrokenThreadPool
from multiprocessing import get_context

from kit import broken, check, fixed, hangs, leaves, main, raises, returns

SPAWN = get_context("spawn")


def square(number):
    if number == 3 and not os.path.exists("died"):
        os.mkdir("died")
        os._exit(1)
    return number * number


@broken(hangs(at="pool.map("))
def pool_forgets():
    with SPAWN.Pool(2) as pool:
        return pool.map(square, range(4))


def run_all(work, tasks, attempts=3):
    done = {}
    while missing := set(tasks) - done.keys():
        try:
            with ProcessPoolExecutor(2, SPAWN) as pool:
                futures = {pool.submit(work, task): task for task in missing}
                for future in as_completed(futures):
                    done[futures[future]] = future.result()
        except BrokenExecutor:
            attempts -= 1
            if not attempts:
                raise
    return done


@fixed(returns(14) & leaves(files=1))
def resubmit_what_is_missing():
    return sum(run_all(square, range(4)).values())


@check(
    raises(
        BrokenProcessPool,
        "A process in the process pool was terminated abruptly while the future was running or pending.",
    )
)
def task_that_always_kills():
    run_all(os._exit, [0])  # status 0 as well


def keep(event):
    EVENT.append(event)


def die_when_told():
    EVENT[0].wait()
    os._exit(1)


EVENT = []


@check(returns(["BrokenProcessPool"] * 3))
def all_futures_fail():
    event = SPAWN.Event()
    with ProcessPoolExecutor(1, SPAWN, keep, (event,)) as pool:
        futures = [pool.submit(die_when_told), *(pool.submit(abs, number) for number in (-1, -2))]
        event.set()
        return [type(future.exception()).__name__ for future in futures]


@check(raises(BrokenProcessPool, "A child process terminated abruptly, the process pool is not usable anymore"))
def executor_stays_broken():
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        pool.submit(os._exit, 1).exception()
        pool.submit(abs, -1)


@check(returns([1, False]))
def pool_goes_on_without_the_task():
    with SPAWN.Pool(1) as pool:
        lost = pool.apply_async(os._exit, (1,))
        return [pool.apply(abs, (-1,)), lost.ready()]


@check(returns(["SystemExit", 1]))
def exit_is_a_result():
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        return [type(pool.submit(sys.exit, 3).exception()).__name__, pool.submit(abs, -1).result()]


@check(returns([True, True]))
def one_name_for_all_executors():
    return [issubclass(each, BrokenExecutor) for each in (BrokenProcessPool, BrokenThreadPool)]


if __name__ == "__main__":
    main()
