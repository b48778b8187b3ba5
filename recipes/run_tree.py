"""run_tree(): subprocess.run() for a command of which nothing may survive. Copy this file.

It owns all that the command starts, intended daemons too (ssh's ControlPersist, gpg-agent, Gradle): for those, send
output to a file and wait. A supervisor in a session of its own runs the command and, on Linux, adopts orphans, so that
neither setsid nor a double fork escapes. It ends the tree when told to, and when its caller is gone, by SIGKILL too.
Limits: on macOS what leaves the process group escapes; not for Windows (job objects) or frozen programs (sys.executable
is no Python there); each call costs the start of one Python more than run().
"""

import contextlib
import glob
import os
import select
import signal
import subprocess
import sys
import time


def run_tree(argv, *, timeout, grace=5.0, check=False, input=None, capture_output=False, **options):
    """As subprocess.run(). On timeout all get SIGTERM, and SIGKILL `grace` seconds later. Options are Popen's."""
    (stop, stopper), (result, report) = os.pipe(), os.pipe()
    command = [sys.executable, "-IS", os.path.abspath(__file__), str(stop), str(report), str(grace), *argv]
    pipe, stdin = subprocess.PIPE if capture_output else None, subprocess.DEVNULL if input is None else subprocess.PIPE
    options = {"stdin": stdin, "stdout": pipe, "stderr": pipe, **options, "pass_fds": (stop, report)}
    try:
        child = subprocess.Popen(command, start_new_session=True, **options)
        try:
            output, errors = child.communicate(input, timeout)
        except BaseException as error:
            os.write(stopper, b"stop")
            output, errors = child.communicate(timeout=grace + 30)  # all who hold the pipes end now
            if isinstance(error, subprocess.TimeoutExpired):
                error.cmd, error.output, error.stderr = argv, output, errors
            raise
        os.write(report, b"killed 0")  # is read when the supervisor could not write
        word, number = os.read(result, 99).split()[:2]
    finally:
        for fd in (stop, stopper, result, report):
            os.close(fd)
    if word == b"errno":
        raise OSError(int(number), os.strerror(int(number)), argv[0])
    if word == b"killed":
        raise ChildProcessError(f"the supervisor of {argv[0]} was killed: what it started may live on")
    done = subprocess.CompletedProcess(argv, int(number), output, errors)
    return done.check_returncode() or done if check else done


def supervise(stop, report, grace, argv):
    if sys.platform == "linux":
        __import__("ctypes").CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    signal.signal(signal.SIGTERM, lambda *_: None)  # not ignored: the command would inherit that
    for fd in (stop, report):
        os.set_inheritable(fd, False)
    try:
        leader = os.posix_spawnp(argv[0], argv, os.environ, setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))
    except OSError as error:
        sys.exit(os.write(report, b"errno %d " % error.errno))
    for fd in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)  # the caller's pipes are for the command alone
    ended, until, pause = {}, None, 0.0005
    while reap(ended) and (time.monotonic() < until if until else leader not in ended):
        pause = min(2 * pause, 0.05)
        if select.select([] if until else [stop], [], [], pause)[0]:
            until = time.monotonic() + grace
            os.killpg(0, signal.SIGTERM)
    while reap(ended) and (pids := list(children())):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)  # a child, not reaped yet: the number can be nobody else's
    os.write(report, b"status %d " % ended.get(leader, -9))
    os.killpg(0, signal.SIGKILL)  # what is left of the group, and us: it exists as long as we do


def reap(ended):
    with contextlib.suppress(ChildProcessError):  # there is none left
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
        return True


def children():
    for path in glob.glob("/proc/[0-9]*/stat"):  # Linux has it; elsewhere the group must do
        with contextlib.suppress(OSError), open(path, encoding="latin-1") as stat:
            if stat.read().rpartition(")")[2].split()[1] == str(os.getpid()):
                yield int(path.split("/")[2])


if __name__ == "__main__":
    supervise(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
