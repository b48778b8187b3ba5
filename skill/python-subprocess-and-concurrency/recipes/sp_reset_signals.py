"""Ignore a signal by an empty handler, not by SIG_IGN, and unblock it around Popen().

exec resets handlers, but keeps what is ignored and what is blocked. Popen restores only
SIGPIPE and SIGXFSZ, which Python itself ignores. The child then ignores SIGTERM or
Ctrl-C as we do: terminate() reports nothing and does nothing. Workers with SIG_IGN for
SIGINT hand it on to all that they start, and so do nohup and a script's `&` to us.

Scope: POSIX. wait(timeout) and kill(), in any case: a child may ignore SIGTERM itself.
    What is blocked strikes us inside unblocked(): have a handler, or start the child by
    os.posix_spawn(setsigmask=()), where nothing can. SIGCHLD: `sp-one-reaper`.
Symptom: terminate() does nothing. And wait() never returns. Or Ctrl-C ends the program,
    but not what it has started.
Look for: signal.SIG_IGN and pthread_sigmask(), in a pool's initializer, too.
Sources: https://man7.org/linux/man-pages/man7/signal.7.html
    https://docs.python.org/3/library/subprocess.html#popen-constructor
    https://github.com/treeverse/dvc/pull/2271
"""

import os
import signal
import sys
from contextlib import contextmanager
from subprocess import DEVNULL, PIPE, Popen, check_output

from kit import broken, check, dies, fixed, hangs, main, returns

SLEEP = ["sleep", "infinity"]
IGNORED = "import sys; from signal import *; print(getsignal(Signals[sys.argv[1]]) == SIG_IGN)"
TELL = [sys.executable, "-c", IGNORED]
POSIX = "exec, and what it keeps, is POSIX's"


@broken(hangs(at="child.wait()"), posix=POSIX)
def ignored_in_the_child_too():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = Popen(SLEEP)
    child.terminate()
    return child.wait()


def ignore(signum):
    signal.signal(signum, lambda *_: None)  # exec resets it


@contextmanager
def unblocked():
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@fixed(returns(-15), posix=POSIX)
def ignored_here_alone():
    ignore(signal.SIGTERM)
    with unblocked():
        child = Popen(SLEEP)
    child.terminate()
    return child.wait(30)


def block(signum):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signum])


@broken(hangs(at="child.wait()"), posix=POSIX)
def blocked_in_the_child_too():
    block(signal.SIGTERM)
    child = Popen(SLEEP)
    child.terminate()
    return child.wait()


@fixed(returns(-15), posix=POSIX)
def blocked_here_alone():
    block(signal.SIGTERM)
    with unblocked():
        child = Popen(SLEEP)
    child.terminate()
    return child.wait(30)


@check(dies("SIGTERM"), posix=POSIX)
def what_was_blocked_strikes():
    block(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # is pending
    with unblocked():
        pass


@check(returns(True), posix=POSIX)
def posix_spawn_changes_the_child_alone():
    block(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    options = {"setsigmask": (), "setsigdef": [signal.SIGUSR1]}
    child = os.posix_spawnp("sleep", SLEEP, os.environ, **options)
    os.kill(child, signal.SIGUSR1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGUSR1


@check(returns(-9), posix=POSIX)
def kill_is_never_ignored():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = Popen(SLEEP)
    child.terminate()
    child.kill()
    return child.wait(30)


@check(returns([b"True\n", b"True\n"]), posix=POSIX)
def nohup_and_a_script_start_us_ignoring():
    background = ["sh", "-c", '"$@" & wait', "sh", *TELL, "SIGINT"]
    argvs = background, ["nohup", *TELL, "SIGHUP"]
    return [check_output(argv, stdin=DEVNULL, timeout=60) for argv in argvs]


@check(returns([-13, 1]), posix=POSIX)
def popen_restores_sigpipe():
    statuses = []
    for restore in (True, False):
        with Popen(["yes"], stdout=PIPE, stderr=DEVNULL, restore_signals=restore) as child:
            child.stdout.read(1)
        statuses.append(child.returncode)
    return statuses


if __name__ == "__main__":
    main()
