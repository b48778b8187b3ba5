"""Start a command in a session of its own and end all of it, whatever its leader did.

A child that is killed does not take along what it has started. In a session of its own it
leads a process group, which one killpg() reaches. The group must get its SIGKILL in any
case: when the leader has obeyed SIGTERM and a descendant has not, when it has ended well
and left a child behind, and on Ctrl-C, which no longer reaches the session. What calls
setsid leaves the group; only a supervisor that adopts orphans finds it (run_tree).

Scope: POSIX; run_tree adopts orphans on Linux only. It also ends daemons that are meant to
    stay: for ssh's ControlPersist, gpg-agent or Gradle, send output to a file and wait. A
    caller that dies of SIGTERM runs no finally (`sp-cleanup-on-sigterm`); run_tree does not
    need it. On Windows, by documentation, a job object does this.
Symptom: after a timeout or Ctrl-C the servers, compilers or browsers that the command
    started still run, hold their ports and files, and have PID 1 as parent.
Look for: kill() or terminate() of what starts others; killpg() before wait() with no second.
Sources: https://docs.python.org/3/library/os.html#os.killpg
    https://man7.org/linux/man-pages/man2/setsid.2.html
    https://man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html
"""

import contextlib
import os
import signal
import subprocess
import sys
from subprocess import DEVNULL, PIPE

from kit import broken, check, fixed, leaves, main, raises, returns
from run_tree import run_tree

STUBBORN = ["sh", "-c", "(trap '' TERM; echo up; exec sleep infinity) & wait"]
ORPHANING = ["sh", "-c", "sleep infinity & exit 0"]
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
POSIX = "sessions, process groups and these signals are POSIX's"
LINUX = "elsewhere nobody can adopt orphans"


@broken(returns(-15) & leaves(1), posix=POSIX)
def wait_for_the_leader_alone():
    child = subprocess.Popen(STUBBORN, stdout=PIPE, start_new_session=True)
    child.stdout.readline()
    os.killpg(child.pid, signal.SIGTERM)
    return child.wait(30)  # it has ended, so nobody sends SIGKILL


def end_group(child, grace=5.0):
    with contextlib.suppress(ProcessLookupError):  # nobody is left
        os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace)
        os.killpg(child.pid, signal.SIGKILL)  # who has not obeyed
    child.wait(grace)


@fixed(returns(-15), posix=POSIX)
def end_whoever_is_left():
    child = subprocess.Popen(STUBBORN, stdout=PIPE, start_new_session=True)
    child.stdout.readline()
    end_group(child)
    return child.returncode


@broken(returns(0) & leaves(1), posix=POSIX)
def leader_ends_well():
    return subprocess.run(ORPHANING, timeout=30).returncode


def run_group(argv, timeout):
    child = subprocess.Popen(argv, stdin=DEVNULL, start_new_session=True)
    try:
        return child.wait(timeout)
    finally:  # of success, timeout and Ctrl-C
        end_group(child)


@fixed(returns(0), posix=POSIX)
def leader_ends_well_and_takes_its_group_along():
    return run_group(ORPHANING, timeout=30)


@check(raises(subprocess.TimeoutExpired, "timed out after 0.1 seconds"), posix=POSIX)
def timeout_ends_the_group():
    run_group(["sh", "-c", "sleep infinity & wait"], timeout=0.1)


@check(returns(0) & leaves(1), posix=POSIX)
def daemon_escapes_the_group():
    return run_group(ESCAPING, timeout=30)


@check(returns(0), linux=LINUX)
def daemon_does_not_escape_a_supervisor():
    return run_tree(ESCAPING, timeout=30).returncode


if __name__ == "__main__":
    main()
