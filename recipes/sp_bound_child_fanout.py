"""Run at most N children at once, and end the others when one fails or Ctrl-C comes.

One child per item takes pipes, processes and memory for all items at once. The open files
give out first, in whatever opens the next one, and the children that run are left alone.
An executor bounds their number, but map() hands out results in order, so that no failure is
seen before all earlier items are done, and to leave `with` waits for every child that runs,
even after Ctrl-C. So take the first failure from as_completed(), cancel what is queued,
and tell the workers: each kills the group of the one child that it owns.

Scope: not needed for a handful of children. Under asyncio, hold a Semaphore for as long as
    the child lives. POSIX, for killpg(). SIGKILL leaves no time to clean up, and misses a
    descendant that called setsid: see `sp-kill-the-process-tree`.
Symptom: OSError: [Errno 24] Too many open files. Or: an item has failed, or Ctrl-C was
    pressed, and nothing happens until the other children are done.
Look for: Popen, Thread or gather() for each item of a list; children started in map() or
    submit() of an executor in `with`; results of map() that nobody reads.
Sources: https://docs.python.org/3/library/concurrent.futures.html
    https://docs.python.org/3/library/resource.html#resource.RLIMIT_NOFILE
    https://github.com/python/cpython/issues/130975
    https://github.com/python/cpython/issues/125886
"""

import os
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from itertools import accumulate
from subprocess import DEVNULL, PIPE, CalledProcessError, Popen, TimeoutExpired, run

from kit import broken, fixed, hangs, leaves, main, raises, returns

STAYS = ["sleep", "infinity"]
INTERRUPTS = ["sh", "-c", "kill -INT $PPID"]
# Says that it begins, waits until four have begun, says that it ends.
COUNTED = """\
printf + >>$0
until grep -q '+.*+.*+.*+' $0; do sleep .01; done
printf - >>$0
"""
POSIX = "limits, signals and process groups"


def allow_open_files(number):
    import resource  # POSIX only

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, most))


@broken(raises(OSError, "Too many open files") & leaves(16), posix=POSIX)
def one_child_per_item():
    allow_open_files(40)
    pipes = {"stdout": PIPE, "stderr": PIPE, "start_new_session": True}
    children = [Popen(STAYS, **pipes) for _ in range(100)]
    return [child.communicate() for child in children]


def run_one(argv, timeout, stop):
    deadline = time.monotonic() + timeout
    pipes = {"stdin": DEVNULL, "stdout": PIPE, "stderr": PIPE}
    with Popen(argv, start_new_session=True, **pipes) as child:
        try:
            while child.returncode is None:
                try:
                    output, errors = child.communicate(timeout=0.1)
                except TimeoutExpired:
                    if stop.is_set() or time.monotonic() > deadline:
                        raise TimeoutExpired(argv, timeout) from None
        finally:
            if child.returncode is None:  # not reaped: still its own number
                os.killpg(child.pid, signal.SIGKILL)
    if child.returncode:
        raise CalledProcessError(child.returncode, argv, output, errors)
    return output


def run_all(commands, at_most=4, timeout=60):
    stop, pool = threading.Event(), ThreadPoolExecutor(at_most)
    try:
        jobs = [pool.submit(run_one, argv, timeout, stop) for argv in commands]
        for job in as_completed(jobs):
            job.result()  # raises the first failure
        return [job.result() for job in jobs]
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


@fixed(returns((100, 4)), posix=POSIX)
def four_children_at_a_time():
    allow_open_files(40)
    with tempfile.NamedTemporaryFile("r") as log:
        done = run_all([["sh", "-c", COUNTED, log.name]] * 100)
        steps = [1 if step == "+" else -1 for step in log.read()]
    return len(done), max(accumulate(steps))


@broken(hangs(at="pool.map("), posix=POSIX)
def wait_for_earlier_items():
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(partial(run, check=True), [STAYS, ["false"]]))


@fixed(raises(CalledProcessError, "returned non-zero exit status 1"), posix=POSIX)
def end_the_others():
    return run_all([STAYS, ["false"]])


@broken(
    hangs(at="INTERRUPTS", until=(3, 9))  # where the exception came from
    | hangs(at="with ThreadPoolExecutor(", since=(3, 10)),
    posix=POSIX,
)
def wait_after_an_interrupt():
    with ThreadPoolExecutor(4) as pool:
        pool.submit(run, STAYS)
        pool.submit(run, INTERRUPTS).result()


@fixed(raises(KeyboardInterrupt, ""), posix=POSIX)
def end_all_of_them():
    return run_all([STAYS, INTERRUPTS])


if __name__ == "__main__":
    main()
