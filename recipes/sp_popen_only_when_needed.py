"""Use run(); where only Popen will do, kill the child before its `with` block waits for it.

`with Popen(...)` closes the pipes and waits; it kills nothing. An exception in the block is
held back until the child ends by itself, which a server never does. KeyboardInterrupt
alone gets out, after a quarter of a second, and leaves the child running. run() kills its
child on every exception. Popen is for talking with a child, or working beside it: there
the kill is yours to write, inside the `with`.

Scope: nothing hangs where the child ends as soon as its pipes are closed, as cat does.
    kill() ends one process, at once: for what it has started see
    `sp-kill-the-process-tree`; for an orderly end try terminate() and wait(timeout=) first,
    and keep kill() as the last word. SIGTERM runs no finally: `sp-cleanup-on-sigterm`.
Symptom: the program stands in a `with` block and shows its traceback only when the child
    has been killed; after Ctrl-C the child still runs. With -X dev, for a child that was
    dropped: ResourceWarning: subprocess 4711 is still running
Look for: `with Popen` without a kill() in finally; Popen for what run() does.
Sources: https://docs.python.org/3/library/subprocess.html#popen-constructor
    https://docs.python.org/3/library/subprocess.html#subprocess.run
    https://github.com/python/cpython/pull/5026
"""

import contextlib
import signal
import subprocess
import sys
import warnings
from subprocess import DEVNULL

from kit import broken, check, fixed, hangs, leaves, main, prints, raises, returns

SERVER = [sys.executable, "-c", "import threading; threading.Event().wait()"]
INTERRUPTER = ["sh", "-c", "read line; kill -INT $PPID; exec sleep infinity"]
POSIX = "elsewhere a child cannot interrupt its parent alone"


@broken(hangs(at="raise ValueError(", until=(3, 9)) | hangs(at="with subprocess.Popen(", since=(3, 10)))
def fail_beside_the_child():
    with subprocess.Popen(SERVER, stdin=DEVNULL):
        raise ValueError("no answer")  # not seen before the server ends


@contextlib.contextmanager
def running(argv):
    with subprocess.Popen(argv, stdin=DEVNULL) as child:
        try:
            yield child
        finally:
            child.kill()  # before `with` waits; does nothing to a dead child


@fixed(raises(ValueError, "no answer"))
def fail_beside_a_child_that_is_killed():
    with running(SERVER):
        raise ValueError("no answer")


@broken(raises(KeyboardInterrupt, "") & leaves(1), posix=POSIX)
def interrupt_popen():
    with subprocess.Popen(INTERRUPTER, stdin=subprocess.PIPE) as child:
        child.communicate(b"line\n", timeout=30)


@fixed(raises(KeyboardInterrupt, ""), posix=POSIX)
def interrupt_run():
    subprocess.run(INTERRUPTER, input=b"line\n", timeout=30)


@check(raises(KeyboardInterrupt, ""))
def interrupt_beside_a_child_that_is_killed():
    with running(SERVER):
        raise KeyboardInterrupt


@check(raises(RuntimeError, "in a signal handler"), posix=POSIX)
def run_kills_on_other_exceptions():
    def handler(signum, frame):
        raise RuntimeError("in a signal handler")

    signal.signal(signal.SIGINT, handler)
    subprocess.run(INTERRUPTER, input=b"line\n", timeout=30)


@check(returns(None) & prints(" is still running") & leaves(1))
def dropped_child():
    warnings.simplefilter("always", ResourceWarning)
    subprocess.Popen(SERVER, stdin=DEVNULL)


if __name__ == "__main__":
    main()
