"""Prepare a child with Popen's arguments or a launcher; never with preexec_fn.

`preexec_fn` is Python code that runs in the child between fork and exec, where no thread
but the forking one exists. A lock that another thread held at the fork stays locked there
for ever. The parent waits in Popen's constructor until the child has called exec: no
`timeout=` counts yet, asyncio's loop stands still as well, and the stuck child outlives
its parent. Arguments do the same work in C, without locks. What has no argument, such as
a limit, belongs in a launcher: a program that sets it in itself and then calls exec.

Scope: POSIX; others have no `preexec_fn`. A program without threads is safe until a
    library starts one. `user`, `group`, `umask` came with 3.9, `process_group` with 3.11:
    it keeps the child in your session, hence at your terminal; a new session does not.
Symptom: Popen() or run(timeout=...) never returns, and `ps` shows the program twice. Or,
    without a cause: SubprocessError: Exception occurred in preexec_fn.
Look for: preexec_fn=.
Sources: https://docs.python.org/3/library/subprocess.html#popen-constructor
    https://github.com/kirodotdev/KiroCrew/issues/935
    https://github.com/borgbase/vorta/issues/187
    https://github.com/rpm-software-management/mock/pull/653
    https://docs.astral.sh/ruff/rules/subprocess-popen-preexec-fn/
"""

import os
import signal
import subprocess
import sys
import threading

from kit import broken, check, dies, fixed, hangs, leaves, main, raises, returns

DEVNULL = subprocess.DEVNULL
POSIX = "no fork, and no preexec_fn, elsewhere"
TELL = "import os; p = os.getpid(); print(os.getsid(0) == p, os.getpgrp() == p)"
TELL_IDS = [sys.executable, "-c", TELL]
TELL_RIGHTS = ["sh", "-c", "id -u; id -g; umask"]
LOCK = threading.Lock()  # stands for any lock of any module


def hold_lock(after_fork=lambda: None):
    """Makes a thread hold LOCK until the fork; returns a preexec_fn."""

    def hold():
        with LOCK:
            held.set()
            os.read(forked, 1)
            after_fork()

    def prepare():
        os.write(announce, b".")
        with LOCK:  # the thread that releases it does so in the parent only
            os.setsid()

    forked, announce = os.pipe()
    held = threading.Event()
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    return prepare


@broken(hangs(at="subprocess.check_output("), posix=POSIX)
def function_prepares_the_child():
    prepare = hold_lock()
    subprocess.check_output(TELL_IDS, preexec_fn=prepare, timeout=0.1)


@fixed(returns(b"True True\n"), posix=POSIX)
def argument_prepares_the_child():
    hold_lock()
    return subprocess.check_output(
        TELL_IDS,
        stdin=DEVNULL,
        start_new_session=True,
        timeout=30,
    )


@check(dies("SIGKILL") & leaves(1), posix=POSIX)
def stuck_child_outlives_its_parent():
    prepare = hold_lock(lambda: os.kill(os.getpid(), signal.SIGKILL))
    subprocess.check_output(TELL_IDS, preexec_fn=prepare, timeout=0.1)


@broken(raises(subprocess.SubprocessError, "Exception occurred in preexec_fn."), posix=POSIX)
def function_loses_the_cause():
    subprocess.run(TELL_IDS, preexec_fn=lambda: os.chdir("missing"))


@fixed(raises(FileNotFoundError, "[Errno 2] No such file or directory: 'missing'"), posix=POSIX)
def argument_names_the_cause():
    subprocess.run(TELL_IDS, cwd="missing", stdin=DEVNULL, timeout=30)


LAUNCHER = """\
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.execvp(sys.argv[1], sys.argv[1:])
"""


@fixed(returns(b"64\n"), posix=POSIX)
def launcher_sets_a_limit():
    argv = [sys.executable, "-I", "-c", LAUNCHER, "sh", "-c", "ulimit -n"]
    return subprocess.check_output(argv, stdin=DEVNULL, timeout=30)


@check(
    returns(b"False True\n"),
    since=(3, 11),
    before=raises(TypeError, "unexpected keyword argument 'process_group'"),
    posix=POSIX,
)
def group_without_a_session():
    return subprocess.check_output(TELL_IDS, process_group=0, timeout=30)


@check(returns(True), since=(3, 9), posix=POSIX)
def rights_have_arguments():
    rights = {"user": os.getuid(), "group": os.getgid(), "umask": 0o27}
    output = subprocess.check_output(TELL_RIGHTS, timeout=30, **rights)
    return output == b"%d\n%d\n0027\n" % (os.getuid(), os.getgid())


if __name__ == "__main__":
    main()
