"""Kill a process pool's workers when a task fails or is late: cancel() reaches none.

A timeout ends the wait, not the task: the end of `with` or the program waits for it. A
kill can leave half a message, for whose rest kill_workers() (3.14) waits, too: close the
ends of the pipes first.

Scope: tasks that share no lock, queue or file with others. multiprocessing.Pool has
    terminate(). The names are private.
Symptom: a pool does not end after a timeout. Or after Ctrl-C or a failure: it stands at
    `with ProcessPoolExecutor`, or after the last line, and the workers compute on.
Look for: result(timeout=), as_completed(), map(timeout=) in `with ProcessPoolExecutor`.
Sources: https://docs.python.org/3/library/concurrent.futures.html#processpoolexecutor
    https://github.com/python/cpython/issues/94777
"""

import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as Late
from multiprocessing import TimeoutError as PoolIsLate
from multiprocessing import get_context
from threading import Event

from kit import broken, check, fixed, hangs, leaves, main, raises, returns

SPAWN = get_context("spawn")


def work(_):
    Event().wait()


@broken(hangs(at="pool"))
def wait_for_late():
    with ProcessPoolExecutor(1, SPAWN) as pool:
        list(pool.map(work, [1], timeout=0.1))


def kill_workers(pool):
    pool._result_queue._writer.close()
    if sys.version_info < (3, 11, 5):
        pool._call_queue._reader.close()  # gh-94777
    for worker in list(pool._processes.values()):
        worker.kill()


def map_all(task, items, workers=None, timeout=None):
    with ProcessPoolExecutor(workers, SPAWN) as pool:
        try:
            futures = [pool.submit(task, item) for item in items]
            for future in as_completed(futures, timeout):
                future.result()
            return [future.result() for future in futures]
        except BaseException:  # Ctrl-C, too
            kill_workers(pool)
            raise


@fixed(raises(Late, "1 (of 1) futures unfinished"))
def kill_late():
    map_all(work, [1], workers=1, timeout=0.1)


@check(returns([0, 1, 2]))
def results_in_order():
    return map_all(abs, [0, -1, -2], workers=2)


@fixed(raises(Late, "6 (of 6) futures unfinished"))
def kill_with_large_items_in_the_queue():
    return map_all(work, [bytes(1 << 20)] * 6, workers=2, timeout=0.3)


def work_or_fail(item):
    if item == "fail":
        raise ValueError("no")
    work(item)


@broken(hangs(at="ool"))
def wait_after_a_failure():
    with ProcessPoolExecutor(2, SPAWN) as pool:
        return list(pool.map(work_or_fail, ["fail", "work"]))


@fixed(raises(ValueError, "no"))
def kill_after_a_failure():
    return map_all(work_or_fail, ["work", "fail", "work"], workers=2)


def work_or_interrupt(item):
    if item == "Ctrl-C":
        raise KeyboardInterrupt
    work(item)


@fixed(raises(KeyboardInterrupt, ""))
def kill_at_ctrl_c():
    return map_all(work_or_interrupt, ["work", "Ctrl-C"], workers=2)


def give(answer):
    while not os.path.exists("go"):
        pass
    return answer


def kill_in_the_middle_of_a_result(kill):
    """The pool's thread is held in a callback, so that it does not read what the worker writes."""
    held, begun = Event(), Event()
    with ProcessPoolExecutor(1, SPAWN) as pool:
        pool.submit(give, 1).add_done_callback(lambda _: (begun.set(), held.wait()))
        second = pool.submit(bytes, 1 << 20)
        open("go", "w").close()
        begun.wait()
        while not pool._result_queue._reader.poll():
            pass
        kill(pool)
        held.set()
        return type(second.exception()).__name__


@fixed(returns("BrokenProcessPool") & leaves(files=1))
def kill_with_a_large_result_on_its_way():
    return kill_in_the_middle_of_a_result(kill_workers)


def kill_only(pool):
    if sys.version_info >= (3, 14):
        return pool.kill_workers()
    return [worker.kill() for worker in pool._processes.values()]


@broken(hangs(at="second.exception()"))
def kill_and_leave_the_pipe_open():
    return kill_in_the_middle_of_a_result(kill_only)


@check(returns([[False, False], [True, True, True]]))
def cancel_reaches_what_was_not_handed_out():
    with ProcessPoolExecutor(1, SPAWN) as pool:
        futures = [pool.submit(work, number) for number in range(6)]
        while not futures[1].running():
            pass
        cancelled = [future.cancel() for future in futures]
        kill_workers(pool)
        return [cancelled[:2], cancelled[3:]]


@check(returns("BrokenProcessPool"))
def futures_of_the_killed_are_broken():
    with ProcessPoolExecutor(1, SPAWN) as pool:
        future = pool.submit(work, 1)
        kill_workers(pool)
        return type(future.exception()).__name__


@check(returns(["kill_workers", "terminate_workers"]), since=(3, 14), before=returns([]))
def public_names_for_it():
    return [name for name in dir(ProcessPoolExecutor) if name.endswith("_workers")]


@check(returns("late"))
def pool_of_multiprocessing_has_terminate():
    pool = SPAWN.Pool(1)
    try:
        return pool.apply_async(work, [1]).get(timeout=0.1)
    except PoolIsLate:
        return "late"
    finally:
        pool.terminate()
        pool.join()


if __name__ == "__main__":
    main()
