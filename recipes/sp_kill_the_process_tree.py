"""Run a command in its own session and end all of it, whatever its leader did.

What ends or is killed leaves running what it started. In its own session it leads a
process group, which killpg() reaches and Ctrl-C does not: send SIGKILL in `finally`,
after success, too, and before reaping the leader, whose id may then be a stranger's.
What calls setsid, as daemons do, escapes: recipes/run_tree.py gets it on Linux, and at
a timeout tries SIGTERM first.

Scope: for daemons that are to stay, run() with output to a file. SIGTERM to the caller
    runs no `finally` (`sp-cleanup-on-sigterm`); run_tree needs none. Older Pythons on
    macOS lack waitid.
Symptom: after a timeout, what a command started still runs. Or after Ctrl-C. It holds
    its ports and files, and its parent is PID 1.
Look for: kill() or terminate() of what starts others; killpg() before wait() with no
    second.
Sources: https://docs.python.org/3/library/os.html#os.killpg
    https://github.com/NousResearch/hermes-agent/issues/43044
"""

import contextlib
import os
import signal
import sys
import time
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired, run

from kit import broken, check, fixed, leaves, main, raises, returns
from run_tree import run_tree

ORPHANING = ["sh", "-c", "sleep infinity &"]
STUBBORN = ["sh", "-c", "(trap '' TERM; echo up; exec sleep infinity) & wait"]
DAEMON = """
import os, signal
reader, writer = os.pipe()
if os.fork():
    os.read(reader, 1)  # it has escaped
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.write(writer, b".")
signal.pause()
"""
ESCAPING = [sys.executable, "-c", DAEMON]
POSIX = "process groups are POSIX's; Windows, it documents, has job objects"
LINUX = "elsewhere nobody can adopt orphans"


@broken(returns(0) & leaves(1), posix=POSIX)
def run_alone(argv=ORPHANING, timeout=30):
    return run(argv, timeout=timeout).returncode


@fixed(returns(0), posix=POSIX)
def run_group(argv=ORPHANING, timeout=30):
    child = Popen(argv, stdin=DEVNULL, start_new_session=True)
    until = time.monotonic() + timeout
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT  # no reaping
    try:
        while not os.waitid(os.P_PID, child.pid, look):
            if time.monotonic() > until:
                raise TimeoutExpired(argv, timeout)
            time.sleep(0.02)
    finally:
        with contextlib.suppress(OSError):  # macOS: a zombie
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(5)
    return child.returncode


@check(raises(TimeoutExpired, "timed out after 0.1 seconds"), posix=POSIX)
def timeout_ends_the_group():
    run_group(["sh", "-c", "sleep infinity & wait"], timeout=0.1)


def start_stubborn():
    child = Popen(STUBBORN, stdout=PIPE, start_new_session=True)
    child.stdout.readline()
    return child


@broken(returns(-15) & leaves(1), posix=POSIX)
def wait_for_the_leader_alone():
    child = start_stubborn()
    os.killpg(child.pid, signal.SIGTERM)
    return child.wait(30)  # it has ended, so nobody sends SIGKILL


@fixed(returns(-15), posix=POSIX)
def kill_whoever_is_left():
    child = start_stubborn()
    os.killpg(child.pid, signal.SIGTERM)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    os.killpg(child.pid, signal.SIGKILL)
    return child.wait(30)


@check(returns(0) & leaves(1), posix=POSIX)
def daemon_escapes_the_group():
    return run_group(ESCAPING)  # like gpg-agent, Gradle, ssh's ControlPersist


@check(returns([0, 0]), linux=LINUX)
def none_escapes_a_supervisor():
    both = ORPHANING, ESCAPING
    return [run_tree(argv, timeout=30).returncode for argv in both]


if __name__ == "__main__":
    main()
