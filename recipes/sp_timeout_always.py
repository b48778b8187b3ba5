"""Bound every wait and kill the child's whole group; run(timeout=) kills the child alone.

When the time is over, run() kills the child. What the child has started lives on and keeps
the pipes open, so that the documented sequel of kill() and an unbounded communicate()
waits for processes that nobody killed. Start the child in a session of its own, kill its
group, and wait for the child only, again with a bound. Catch TimeoutExpired by its name: it
is no TimeoutError. What it holds of the output is bytes, even in text mode.

Scope: POSIX. SIGKILL gives no time to clean up and does not reach what called setsid; what
    outlives a child that ends in time gets none: `sp-kill-the-process-tree`. If that holds
    the pipe, success is reported as late: `sp-eof-is-not-exit`. While Popen() starts the
    child, no time runs: `sp-no-preexec-fn`. On Windows, by its source, run() itself reads
    without a bound after the kill.
Symptom: Command '['sleep', 'infinity']' timed out after 0.2 seconds, but what it started
    still runs; or the program stands in communicate(), long after its timeout.
Look for: run, wait, communicate without timeout=; kill() before a bare communicate().
Sources: https://docs.python.org/3/library/subprocess.html#subprocess.Popen.communicate
    https://github.com/python/cpython/issues/81605
    https://github.com/python/cpython/issues/82388
    https://github.com/python/cpython/issues/87597
"""

import contextlib
import os
import signal
import subprocess

from kit import broken, check, fixed, hangs, leaves, main, raises, returns

TREE = ["sh", "-c", "(echo ready; exec sleep infinity) & wait"]
SECONDS = (0.2, 2, 20)  # more, should they be over before the tree stands
POSIX = "the programs and process groups are those of a POSIX system"


@broken(returns(b"ready\n") & leaves(1), posix=POSIX)
def run_kills_one_process():
    for seconds in SECONDS:
        reader, writer = os.pipe()
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(TREE, stdout=writer, timeout=seconds)
        os.close(writer)
        if heard := os.read(reader, 6):  # from what run() has not killed
            return heard
    return None


@broken(hangs(at="child.communicate()"), posix=POSIX)
def read_on_after_the_kill():
    child = subprocess.Popen(TREE, stdout=subprocess.PIPE)
    child.stdout.readline()  # the tree stands
    try:
        return child.communicate(timeout=0.2)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.communicate()  # waits for sleep to close the pipe


def run_in_time(argv, timeout):
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=timeout)
    except BaseException:  # Ctrl-C, too: it does not reach the session
        with contextlib.suppress(ProcessLookupError):  # none is left
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(timeout=5)  # not for the pipe, which others may hold
        child.stdout.close()
        raise
    return subprocess.CompletedProcess(argv, child.returncode, output)


@fixed(raises(subprocess.TimeoutExpired, "timed out after 0.2 seconds"), posix=POSIX)
def kill_the_group():
    return run_in_time(TREE, timeout=0.2)


@check(returns(b"ready\n"), posix=POSIX)
def the_group_had_two_and_its_output_is_bytes():
    for seconds in SECONDS:
        try:
            run_in_time(TREE, timeout=seconds)
        except subprocess.TimeoutExpired as late:
            if late.stdout:
                return late.stdout
    return None


@check(returns("hi\n"), posix=POSIX)
def in_time_it_is_like_run():
    return run_in_time(["echo", "hi"], timeout=30).stdout


@check(raises(subprocess.TimeoutExpired, "Command '['sleep', 'infinity']' timed out after"), posix=POSIX)
def the_builtin_error_does_not_catch_it():
    with contextlib.suppress(TimeoutError):
        subprocess.run(["sleep", "infinity"], timeout=0.2)


if __name__ == "__main__":
    main()
