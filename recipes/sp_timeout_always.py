"""Bound every wait and kill the child's whole group; run(timeout=) kills the child alone.

What the child started lives on and holds the pipes, for whose end communicate() waits
after the documented kill(), and on Windows run() itself. Give the child a session of its
own, kill that group, and wait for the child only. TimeoutExpired is no TimeoutError, and
holds bytes even in text mode.

Scope: SIGKILL lets nobody clean up, and misses what calls setsid or outlives a child
    that ends in time: `sp-kill-the-process-tree`. Whoever holds the pipe makes success
    look late: `sp-eof-is-not-exit`. No timeout covers Popen() itself.
Symptom: a command timed out, and parts of it still run. The message: Command '['sleep',
    'infinity']' timed out after 0.2 seconds. Or the program stands in communicate(),
    long after its timeout.
Look for: run, wait, communicate without timeout=; kill() before a bare communicate().
Sources: https://docs.python.org/3/library/subprocess.html
    https://github.com/python/cpython/issues/82388
"""

import os
import signal
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired, run

from kit import broken, check, fixed, hangs, leaves, main, raises, returns

TREE = ["sh", "-c", "sleep infinity & echo up; wait"]
ANSWERING_TREE = ["sh", "-c", "(echo ready; exec sleep infinity) & wait"]
SECONDS = (0.2, 2, 20)  # more, should they be over before the child is ready
POSIX = "the programs and process groups are those of a POSIX system"


@broken(hangs(at="child.communicate()"), posix=POSIX)
def kill_the_child_alone():
    child = Popen(TREE, stdout=PIPE)
    child.stdout.readline()  # both run
    child.kill()  # as run() does
    return child.communicate()  # `sleep` holds the pipe


def run_in_time(argv, timeout):
    child = Popen(argv, stdin=DEVNULL, stdout=PIPE, start_new_session=True)
    try:
        output, _ = child.communicate(None, timeout)
        return child.returncode, output
    except BaseException:  # Ctrl-C, too
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(5)
        child.stdout.close()
        raise


@fixed(raises(TimeoutExpired, "timed out after 0.2 seconds"), posix=POSIX)
def kill_the_group():
    return run_in_time(TREE, timeout=0.2)


@broken(returns(b"ready\n") & leaves(1), posix=POSIX)
def run_kills_one_process():
    for seconds in SECONDS:
        reader, writer = os.pipe()
        with suppress(TimeoutExpired):
            run(ANSWERING_TREE, stdout=writer, timeout=seconds)
        os.close(writer)
        if heard := os.read(reader, 6):  # from what run() has not killed
            return heard
    return None


def output_when_late(run_late, argv, **options):
    for seconds in SECONDS:
        try:
            run_late(argv, timeout=seconds, **options)
        except TimeoutExpired as late:
            if late.stdout:
                return late.stdout
    return None


@fixed(returns(b"ready\n"), posix=POSIX)
def run_in_time_kills_both():
    return output_when_late(run_in_time, ANSWERING_TREE)


@check(returns(b"ready\n"), posix=POSIX)
def text_mode_holds_bytes():
    argv = ["sh", "-c", "echo ready; exec sleep infinity"]
    return output_when_late(run, argv, stdout=PIPE, encoding="utf-8")


@check(returns((0, b"hi\n")), posix=POSIX)
def in_time_it_returns_status_and_output():
    return run_in_time(["echo", "hi"], timeout=30)


@check(raises(TimeoutExpired, "Command '['sleep', 'infinity']' timed out after"), posix=POSIX)
def the_builtin_error_does_not_catch_it():
    with suppress(TimeoutError):
        run(["sleep", "infinity"], timeout=0.2)


@check(hangs(at="run("), posix=POSIX)
def no_time_runs_while_popen_starts_the_child():
    reader, _ = os.pipe()
    run(["true"], preexec_fn=lambda: os.read(reader, 1), timeout=0.2)


if __name__ == "__main__":
    main()
