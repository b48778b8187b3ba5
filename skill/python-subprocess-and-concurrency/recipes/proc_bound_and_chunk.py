"""Size a pool by real limits, send many small tasks in chunks, and bound the input of map().

Every task of a map() is a message with a pickle and a wake-up each way, which costs
more than a small function: a chunk is one message for many. map() and imap() consume
their whole input before the first result, so that a long or endless one fills the
memory. The default size counts CPUs, not a container's quota: with half a CPU of a host
with 64 there are 64 workers.

Scope: few long tasks need no chunks; large ones leave workers idle at the end.
    buffersize= (3.14+) bounds map() and counts chunks; before, submit as results come.
    The defaults honour affinity and PYTHON_CPU_COUNT from 3.13 on, a quota never:
    usable_cpus() in the proof does. On Windows, it is reported, pass at most 60.
Symptom: more processes make it slower than a loop. Or memory grows while map() has not
    yielded its first result; or a container with a small quota runs one worker per CPU
    of its host.
Look for: map() of a small function without chunksize; map() over a generator;
    max_workers left out, or os.cpu_count().
Sources: https://docs.python.org/3/library/concurrent.futures.html#concurrent.futures.Executor.map
    https://github.com/python/cpython/issues/74028
"""

import math
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context

from kit import broken, check, fixed, main, raises, returns

SPAWN = get_context("spawn")


class Pool(ProcessPoolExecutor):
    messages = 0

    def submit(self, *args):
        self.messages += 1
        return super().submit(*args)


@broken(returns(1000))
def send_each_number():
    with Pool(max_workers=2, mp_context=SPAWN) as pool:
        list(pool.map(abs, range(1000)))
    return pool.messages


@fixed(returns(10))
def send_chunks():
    with Pool(max_workers=2, mp_context=SPAWN) as pool:
        list(pool.map(abs, range(1000), chunksize=100))
    return pool.messages


def counted(inputs, taken):
    for each in inputs:
        taken.append(each)
        yield each


@broken(returns(500))
def map_takes_all():
    taken = []
    with ProcessPoolExecutor(2, SPAWN) as pool:
        next(iter(pool.map(abs, counted(range(500), taken))))
        return len(taken)


def bounded_map(pool, function, inputs, limit):
    running = set()
    for each in inputs:
        running.add(pool.submit(function, each))
        if len(running) >= limit:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    yield from (future.result() for future in running)


@fixed(returns([8, 500]))
def bounded_map_takes_few():
    taken = []
    with ProcessPoolExecutor(2, SPAWN) as pool:
        results = bounded_map(pool, abs, counted(range(500), taken), limit=8)
        next(results)
        return [len(taken), 1 + len(list(results))]


@check(returns(40), since=(3, 14), before=raises(TypeError, "buffersize"))
def buffersize_counts_chunks():
    taken = []
    with ProcessPoolExecutor(2, SPAWN) as pool:
        pool.map(abs, counted(range(500), taken), chunksize=10, buffersize=4)
        return len(taken)


@check(returns(True))
def imap_takes_all_too():
    ended = threading.Event()

    def inputs():
        yield from range(500)
        ended.set()

    with SPAWN.Pool(1) as pool:
        pool.imap(abs, inputs())  # and nobody asks for a result
        return ended.wait()


@check(returns(1), since=(3, 13), before=returns(64), linux="elsewhere there is no affinity")
def default_honours_affinity():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.cpu_count = lambda: 64
    return ProcessPoolExecutor()._max_workers


@check(returns(True), since=(3, 13), before=returns(False))
def default_honours_a_variable():
    program = "from concurrent.futures import ProcessPoolExecutor as P; print(P()._max_workers)"
    environment = {**os.environ, "PYTHON_CPU_COUNT": "59"}
    argv = [sys.executable, "-c", program]
    return subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout == b"59\n"


def usable_cpus(path="/sys/fs/cgroup/cpu.max"):
    try:
        with open(path) as file:
            quota, period = file.read().split()
    except OSError:  # no Linux, or the older cgroups
        quota = "max"
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = cpus if quota == "max" else math.ceil(int(quota) / int(period))
    windows = 60 if os.name == "nt" else cpus  # it takes 61 at most; black had users who needed 60
    return min(cpus, limit, windows)


@fixed(returns([1, True, True]))
def quota_is_read():
    read = []
    for text in ("50000 100000\n", "max 100000\n"):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            read.append(usable_cpus(file.name))
    return [read[0], read[1] >= 1, usable_cpus() >= 1]


@check(
    raises(ValueError, "max_tasks_per_child is incompatible with the 'fork'"),
    since=(3, 11),
    before=raises(TypeError, "max_tasks_per_child"),
    posix="Windows has no fork",
)
def new_workers_need_another_start_method():
    ProcessPoolExecutor(1, get_context("fork"), max_tasks_per_child=10)


@check(returns("spawn"), since=(3, 11), before=raises(TypeError, "max_tasks_per_child"))
def without_a_context_it_is_spawn():
    return ProcessPoolExecutor(1, max_tasks_per_child=10)._mp_context.get_start_method()


if __name__ == "__main__":
    main()
