"""Give a file to a child that may start a daemon; the end of a pipe is not its exit.

A pipe ends when its last writer closes it, and what the child has started writes to it,
too: gpg-agent, ssh's ControlMaster, a build server. run() and communicate() wait for
that end first. So a command that has succeeded hangs, or is reported as late. A file
needs no end: wait for the child, and read what is there. A pipe can also end early: the
child may close it and go on, so wait() all the same.

Scope: a child that starts nothing, or gives it streams of its own (`>log 2>&1 &`), may
    have a pipe. After a kill, bound the drain, too: who left the group holds the pipe.
    The file takes what the daemon writes later, though it has no name.
Symptom: TimeoutExpired, but the command was done. Or communicate() never returns, and
    `ps` shows the child as <defunct>.
Look for: PIPE or capture_output with git, ssh or `&`; communicate() after kill().
Sources: https://docs.python.org/3/library/subprocess.html#subprocess.Popen.communicate
    https://github.com/amoffat/sh/issues/310
    https://github.com/python/cpython/issues/82388
"""

import os
import select
import signal
import sys
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired, run
from tempfile import TemporaryFile

from kit import broken, check, fixed, hangs, leaves, main, returns

STARTS = ["sh", "-c", "sleep infinity & echo started"]
CLOSES = ["sh", "-c", "exec >&-; read line; exit 3"]
DAEMON = ["sh", "-c", "echo up; exec sleep infinity"]
START_DAEMON = f"import subprocess; subprocess.run({DAEMON}, start_new_session=True)"
POSIX = "the programs and process groups are those of a POSIX system"


@broken(hangs(at="run("), posix=POSIX)
def wait_for_the_pipe():
    return run(STARTS, stdout=PIPE).stdout


def run_into_file(argv, timeout):
    with TemporaryFile() as file:
        done = run(argv, stdin=DEVNULL, stdout=file, timeout=timeout)
        fd = file.fileno()  # seek() would move the daemon, too
        done.stdout = os.pread(fd, os.fstat(fd).st_size, 0)
        return done


@fixed(returns(b"started\n") & leaves(1), posix=POSIX)
def wait_for_the_child():
    return run_into_file(STARTS, timeout=30).stdout


@broken(returns(("late", 0)) & leaves(1), posix=POSIX)
def success_is_reported_as_late():
    child = Popen(STARTS, stdout=PIPE)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended
    with suppress(TimeoutExpired):
        return "in time", child.communicate(timeout=0.2)
    return "late", child.wait(30)


@fixed(returns(("in time", 0)) & leaves(1), posix=POSIX)
def success_is_success():
    return "in time", run_into_file(STARTS, timeout=30).returncode


def start_and_kill():
    argv = [sys.executable, "-c", START_DAEMON]
    child = Popen(argv, stdout=PIPE, start_new_session=True)
    select.select([child.stdout], [], [])  # the daemon is up
    os.killpg(child.pid, signal.SIGKILL)  # misses who has left
    return child


@broken(hangs(at="child.communicate()"), posix=POSIX)
def drain_without_a_bound():
    child = start_and_kill()
    return child.communicate()[0], child.wait(30)


def drain(child, seconds=2):
    try:
        return child.communicate(timeout=seconds)[0]
    except TimeoutExpired as late:
        child.stdout.close()
        return late.stdout or b""


@fixed(returns((b"up\n", -9)) & leaves(1), posix=POSIX)
def drain_with_a_bound():
    child = start_and_kill()
    return drain(child, seconds=1), child.wait(30)


@check(returns((b"", None, 3)), posix=POSIX)
def pipe_can_end_before_the_child():
    child = Popen(CLOSES, stdin=PIPE, stdout=PIPE)
    output, status = child.stdout.read(), child.poll()
    child.communicate(b"line\n")
    return output, status, child.returncode


@check(returns(b"started\n") & leaves(1), posix=POSIX)
def daemon_with_streams_of_its_own():
    quiet = ["sh", "-c", "sleep infinity >/dev/null 2>&1 & echo started"]
    return run(quiet, capture_output=True, timeout=30).stdout


@check(returns(b"two\n"), posix=POSIX)
def seek_moves_every_writer():
    with TemporaryFile() as file:
        run(["echo", "one"], stdout=file, timeout=30)
        file.seek(0)
        run(["echo", "two"], stdout=file, timeout=30)
        return os.pread(file.fileno(), 100, 0)


if __name__ == "__main__":
    main()
