"""Run at most N children at once, and end the others when one fails or Ctrl-C comes.

One child per item takes files, processes and memory for all at once. Files give out
first, and the children that run are left alone. An executor bounds them, but its map()
hands out results in order: a failure waits for all earlier items, and `with` for what
runs, even after Ctrl-C, up to the timeout. If that is too long, or commands leave
children, copy `run_all` from the proof: it cancels what is queued and kills groups.

Scope: not for a handful of children. Under asyncio, hold a Semaphore while the child
    lives. What escapes a killed group: `sp-kill-the-process-tree`.
Symptom: OSError: [Errno 24] Too many open files. Or: an item has failed, or Ctrl-C was
    pressed, and nothing happens until the other children are done.
Look for: a Popen, Thread or gather() per item; children in submit() or map() in `with`.
Sources: https://docs.python.org/3/library/concurrent.futures.html
    https://github.com/python/cpython/issues/125886
"""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor, TimeoutError, as_completed
from contextlib import suppress
from functools import partial
from itertools import accumulate
from subprocess import DEVNULL, PIPE, CalledProcessError, Popen, check_output
from tempfile import NamedTemporaryFile, TemporaryFile

from kit import broken, check, fixed, hangs, leaves, main, raises, returns

STAYS = ["sleep", "infinity"]
TREE = ["sh", "-c", "sleep infinity & >up; wait"]
FAILS = ["sh", "-c", "until rm up; do sleep .01; done; exit 3"]  # with the tree up
INTERRUPTS = ["sh", "-c", "until rm up; do sleep .01; done; kill -INT $PPID"]
COUNTED = "printf + >>$0; until grep -q '+.*+.*+.*+' $0; do sleep .01; done; printf - >>$0"
POSIX = "limits, signals and process groups"


def allow_few_files():
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))


@broken(raises(OSError, "Too many open files") & leaves(16), posix=POSIX)
def one_child_per_item():
    allow_few_files()
    children = [Popen(STAYS, stdout=PIPE, stderr=PIPE) for _ in range(100)]
    return [child.communicate() for child in children]


def run_bounded(commands, at_most=4, timeout=60):
    run_one = partial(check_output, stdin=DEVNULL, timeout=timeout)
    with ThreadPoolExecutor(at_most) as pool:
        return list(pool.map(run_one, commands))


@fixed(returns(100), posix=POSIX)
def four_at_a_time():
    allow_few_files()
    return len(run_bounded([["true"]] * 100))


@broken(hangs(at="pool.map("), posix=POSIX)
def wait_for_earlier_items():
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(check_output, [TREE, FAILS]))


def run_all(commands, at_most=4, timeout=600):  # in all
    stop, pool = threading.Event(), ThreadPoolExecutor(at_most)
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT  # no reaping

    def run_one(argv):
        with TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
            child = Popen(argv, stdin=DEVNULL, stdout=file, start_new_session=True)
            while not os.waitid(os.P_PID, child.pid, look):
                if stop.wait(0.02):
                    break
            with suppress(PermissionError):  # macOS: a zombie
                os.killpg(child.pid, signal.SIGKILL)  # and what it has left
            if child.wait():
                raise CalledProcessError(child.returncode, argv)
            file.seek(0)
            return file.read()

    try:
        jobs = [pool.submit(run_one, argv) for argv in commands]
        for job in as_completed(jobs, timeout):
            job.result()
        return [job.result() for job in jobs]
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


@fixed(raises(CalledProcessError, "returned non-zero exit status 3"), posix=POSIX)
def end_the_others():
    return run_all([TREE, FAILS, *[STAYS] * 98])


@broken(hangs(at="INTERRUPTS", until=(3, 9)) | hangs(at="with ThreadPool", since=(3, 10)), posix=POSIX)
def wait_after_an_interrupt():
    with ThreadPoolExecutor(4) as pool:
        pool.submit(check_output, TREE)
        pool.submit(check_output, INTERRUPTS).result()


@fixed(raises(KeyboardInterrupt, ""), posix=POSIX)
def end_all_of_them():
    return run_all([TREE, INTERRUPTS])


@check(raises(TimeoutError, "(of 100) futures unfinished"), posix=POSIX)
def end_all_that_is_late():
    return run_all([STAYS] * 100, timeout=0.2)


@check(returns([(40, 4), (40, 4)]), posix=POSIX)
def both_run_four_at_once():
    most = []
    for run_them in (run_bounded, run_all):
        with NamedTemporaryFile("r") as log:
            run_them([["sh", "-c", COUNTED, log.name]] * 20)
            steps = [1 if step == "+" else -1 for step in log.read()]
        most.append((len(steps), max(accumulate(steps))))
    return most


if __name__ == "__main__":
    main()
