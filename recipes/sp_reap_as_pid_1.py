"""Put an init before Python in a container (docker run --init); PID 1 must reap orphans.

Whoever loses its parent gets PID 1, which is expected to wait for it. subprocess waits
for its own children only: each orphan that ends stays a zombie, and holds a pid, until
no process can be started. Nor does SIGTERM end a PID 1 without a handler. Waiting for
all in the same process takes statuses from subprocess (`sp-one-reaper`): so the init is
a process of its own.

Scope: Linux. Not under --init, tini, or shareProcessNamespace in Kubernetes, and where
    nothing outlives its parent.
Symptom: more and more <defunct> processes. Their parent is 1. In the end:
    BlockingIOError: [Errno 11] Resource temporarily unavailable, from fork.
Look for: ENTRYPOINT or CMD that is Python or a shell script; a container with no init.
Sources: https://github.com/krallin/tini/issues/8
    https://man7.org/linux/man-pages/man7/pid_namespaces.7.html
"""

import ctypes
import os
import signal
from contextlib import suppress
from subprocess import DEVNULL, run

from kit import broken, dies, fixed, leaves, main, returns

LINUX = "elsewhere nobody but the real PID 1 adopts orphans"
ORPHANS = ["sh", "-c", "(true & true & true &)"]
WATCHES = """pid=$(sh -c 'exec true >&- & echo $!')
while kill -0 $pid 2>/dev/null; do sleep .01; done
exit 3"""


def adopt_orphans():
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # as PID 1 does


def count_zombies(found=0):
    with suppress(ChildProcessError):  # none is left
        while os.wait():
            found += 1
    return found


@broken(returns(3), linux=LINUX)
def run_as_pid_1():
    adopt_orphans()
    run(ORPHANS, stdin=DEVNULL, timeout=60)
    return count_zombies()


def run_and_reap_all(argv):
    child = os.posix_spawnp(argv[0], argv, os.environ)
    while True:
        ended, status = os.wait()  # orphans, too
        if ended == child:
            return os.waitstatus_to_exitcode(status)


@fixed(returns((3, 0)), linux=LINUX)
def run_below_a_reaper():
    adopt_orphans()
    return run_and_reap_all(["sh", "-c", WATCHES]), count_zombies()


@broken(dies("SIGTERM") & leaves(1), linux=LINUX)
def keep_the_signal_for_itself():
    run_and_reap_all(["sh", "-c", "kill $PPID; exec sleep infinity"])


def init(argv):
    """Passes signals on, as tini does: PID 1 has to."""
    ours = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ours)
    python = [signal.SIGPIPE, signal.SIGXFSZ]  # which it ignores
    child = os.posix_spawnp(argv[0], argv, os.environ, setsigmask=mask, setsigdef=python)
    while True:
        signum = signal.sigwait(ours)
        if signum != signal.SIGCHLD:
            os.kill(child, signum)
        ended = 1, 0
        while signum == signal.SIGCHLD and ended[0]:
            ended = os.waitpid(-1, os.WNOHANG)
            if ended[0] == child:
                return os.waitstatus_to_exitcode(ended[1])


@fixed(returns((3, -15, 0)), linux=LINUX)
def pass_signals_on():
    adopt_orphans()
    ended = init(["sh", "-c", "kill $PPID; exec sleep infinity"])
    return init(["sh", "-c", WATCHES]), ended, count_zombies()


if __name__ == "__main__":
    main()
