"""run_tree(): subprocess.run() for a command of which nothing may survive. Copy this file.

It owns all that the command starts, intended daemons too (ssh's ControlPersist, gpg-agent, Gradle): for those, send
output to a file and wait. One more Python, in a session of its own, ends all of it when told to or when we are gone. On
Linux it adopts what leaves its process group; on macOS that escapes. Not for Windows, frozen or set-user-ID programs.
"""

import contextlib
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time


def run_tree(argv, *, timeout, grace=5.0, check=False, input=None, capture_output=False, env=None, **options):
    """As subprocess.run(), but stdin is empty. After `timeout` the group gets SIGTERM, after `grace` all SIGKILL."""
    command = [argv] if isinstance(argv, (str, bytes, os.PathLike)) else list(argv)
    options = {"stdin": subprocess.DEVNULL, **options} if input is None else dict(stdin=subprocess.PIPE, **options)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} if capture_output else {}
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket(fileno=fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 3)) as clear_of_stdin:
        fd, ctype, name = clear_of_stdin.fileno(), (os.environ if env is None else env).get("LC_CTYPE", ""), command[0]
        outer = [sys.executable, "-IS", os.path.abspath(__file__), *map(str, (os.getpid(), fd, grace)), ctype, *command]
        child = subprocess.Popen(outer, env=env, pass_fds=[fd], start_new_session=True, shell=False, **pipes, **options)
        child.args = argv  # which exceptions name
        try:
            output, errors = child.communicate(input, timeout)
        except BaseException:
            ours.send(b"stop")
            with contextlib.suppress(UnicodeDecodeError):  # output can end within a character
                child.communicate(timeout=grace + 30)  # reads on, so that a full pipe keeps nobody from ending
            raise
        theirs.send(b"10 0")  # ECHILD, for a supervisor that was killed: what it started may live on
        error, status = map(int, ours.recv(99).split()[:2])
    if error:
        raise OSError(error, os.strerror(error), name)
    if check and status:
        raise subprocess.CalledProcessError(status, argv, output, errors)
    return subprocess.CompletedProcess(argv, status, output, errors)


def reap(ended):
    with contextlib.suppress(ChildProcessError):  # none is left
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended.setdefault(found[0], os.waitstatus_to_exitcode(found[1]))  # a number may come again
        time.sleep(0.005)
        return True


if __name__ == "__main__":  # the supervisor
    caller, fd, grace, ctype, argv = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], sys.argv[5:]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # while it is ignored there are no statuses
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # what goes to the group is not for us
    if sys.platform == "linux" and __import__("ctypes").CDLL(None).prctl(36, 1, 0, 0, 0):  # PR_SET_CHILD_SUBREAPER
        sys.exit("run_tree: this system lets no process adopt orphans")
    env = {k: v for k, v in {**os.environ, "LC_CTYPE": ctype}.items() if v or k != "LC_CTYPE"}  # Python may change it
    os.set_inheritable(fd, False)
    try:
        leader = os.posix_spawnp(argv[0], argv, env, setsigmask=mask, setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))
    except OSError as error:
        sys.exit(os.write(fd, f"{error.errno} 0 ".encode()))
    ended: dict[int, int] = {}
    told, until = select.poll(), None
    told.register(fd, select.POLLIN)
    while reap(ended) and (time.monotonic() < until if until else leader not in ended):
        if not until and (told.poll(0) or os.getppid() != caller):  # a fork of the caller can hold its end open
            until = time.monotonic() + grace
            os.killpg(0, signal.SIGTERM)
    while reap(ended) and sys.platform == "linux":
        for name in reversed(os.listdir("/proc")):  # the newest first: it may be about to fork
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # it is gone, or no process
                if int(stat.read().rpartition(b")")[2].split()[1]) == os.getpid():
                    os.kill(int(name), signal.SIGKILL)  # a child, not reaped yet: the number can be nobody else's
    with contextlib.suppress(BrokenPipeError):  # the caller is gone
        os.write(fd, b"0 %d " % ended.get(leader, -9))
    os.killpg(0, signal.SIGKILL)  # what is left of the group, and us: it exists as long as we do
