"""Give max_workers, and bound what is submitted; map() and submit() take all input at once.

An executor bounds its threads, not its tasks: submit() never blocks. map() submits its
whole input before it returns: a long one fills the memory with items and unread
results, from an endless one it never returns.

Scope: not needed for a handful of items. Python 3.14 has map(buffersize=). By default
    there are min(32, CPUs + 4) threads, from 3.13 on by the CPUs of the process. Stated
    earlier: python-async-best-practices, `async-bound-concurrency`,
    `async-no-blocking-event-loop`.
Symptom: the memory grows with the length of the input. Or map() over a stream of
    messages yields nothing, for ever; or the server refuses some of the connections.
Look for: ThreadPoolExecutor(); submit() or map() over a generator, a cursor, a whole
    file.
Sources: https://docs.python.org/3/library/concurrent.futures.html
    https://github.com/python/cpython/issues/74028
"""

import os
import subprocess
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from threading import Barrier, BoundedSemaphore, Event, get_ident

from kit import broken, check, fixed, hangs, main, raises, returns

SIZE = "from concurrent.futures import *; print(ThreadPoolExecutor()._max_workers)"


@broken(returns((0, [])))
def map_reads_everything():
    items = iter(range(6))
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = pool.map(abs, items)
        return next(results), list(items)


def map_bounded(pool, function, items, ahead):
    pending = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


@fixed(returns((0, [2, 3, 4, 5])))
def two_items_are_read_ahead():
    items = iter(range(6))
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = map_bounded(pool, abs, items, ahead=2)
        return next(results), list(items)


def hold(pool, workers):
    """Occupies all workers; returns what sets them free."""
    all_begun, release = Barrier(workers + 1), Event()
    for _ in range(workers):
        pool.submit(lambda: (all_begun.wait(), release.wait()))
    all_begun.wait()
    return release.set


@broken(returns(10_000))
def submit_never_blocks():
    with ThreadPoolExecutor(max_workers=2) as pool:
        let_go = hold(pool, workers=2)
        futures = [pool.submit(abs, -1) for _ in range(10_000)]
        queued = sum(future.cancel() for future in futures)
        let_go()
    return queued


def submit_bounded(pool, room, function, *args):
    room.acquire()
    try:
        future = pool.submit(function, *args)
    except BaseException:
        room.release()
        raise
    future.add_done_callback(lambda _: room.release())
    return future


@fixed(returns((10_000, True)))
def submit_waits_for_room():
    room, futures, peaks = BoundedSemaphore(8), [], []
    with ThreadPoolExecutor(max_workers=2) as pool:
        for _ in range(10_000):
            futures.append(submit_bounded(pool, room, abs, -1))
            peaks.append(sum(not future.done() for future in futures[-100:]))
    return sum(future.result() for future in futures), max(peaks) <= 8


@check(hangs(at="room.acquire()"))
def the_ninth_waits():
    room, pool = BoundedSemaphore(8), ThreadPoolExecutor(max_workers=2)
    hold(pool, workers=2)
    for _ in range(9):
        submit_bounded(pool, room, abs, -1)


@check(returns((0, [3, 4, 5])), since=(3, 14), before=raises(TypeError, "keyword argument 'buffersize'"))
def map_has_a_buffersize():
    items = iter(range(6))
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = pool.map(abs, items, buffersize=2)
        return next(results), list(items)


@check(raises(ValueError, "invalid literal for int() with base 10: 'x'"))
def an_endless_input_may_fail():
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(map_bounded(pool, int, cycle("01x"), ahead=2))


@check(returns(3))
def no_more_threads_than_max_workers():
    together = Barrier(3)  # in no smaller pool they would ever be together
    with ThreadPoolExecutor(max_workers=3) as pool:
        threads = pool.map(lambda _: (together.wait(), get_ident())[1], range(300))
    return len(set(threads))


@check(returns(True), since=(3, 13), before=returns(False))
def the_default_follows_the_process():
    cpus = 1 if os.cpu_count() != 1 else 2
    env = {**os.environ, "PYTHON_CPU_COUNT": str(cpus)}
    size = subprocess.check_output([sys.executable, "-c", SIZE], stdin=subprocess.DEVNULL, env=env, timeout=60)
    return int(size) == cpus + 4


@check(returns(1), since=(3, 13), before=raises(AttributeError, "'process_cpu_count'"), linux="pins itself to a CPU")
def the_process_may_have_fewer():
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
    return os.process_cpu_count()


if __name__ == "__main__":
    main()
