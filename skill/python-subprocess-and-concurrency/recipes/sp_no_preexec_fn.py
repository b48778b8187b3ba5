"""Prepare a child with Popen's arguments or a launcher; never with preexec_fn.

`preexec_fn` is Python code that runs in the child between fork and exec, where no
thread but the forking one exists: a lock that another one held at the fork stays locked
for ever. The parent waits in Popen's constructor for that exec, where no `timeout=`
counts yet and asyncio's loop stands still; the stuck child outlives it. Arguments do
the same in C, and take no lock. For what has none, such as a limit, start a launcher
that sets it, then execs.

Scope: without threads it is safe, until a library starts one. `user`, `group` and
    `umask` came with 3.9, `process_group` with 3.11: it leaves the child at your tty.
Symptom: Popen() or run(timeout=...) never returns. `ps` shows the program twice. Or,
    without a cause: SubprocessError: Exception occurred in preexec_fn.
Look for: preexec_fn=.
Sources: https://docs.python.org/3/library/subprocess.html
    https://github.com/borgbase/vorta/issues/187
    https://github.com/kirodotdev/KiroCrew/issues/935
"""

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from subprocess import DEVNULL, SubprocessError, check_output

from kit import broken, check, dies, fixed, hangs, leaves, main, raises, returns

POSIX = "no fork, and no preexec_fn, elsewhere"
TELL = [sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"]
TELL_GROUP = [sys.executable, "-c", "import os; print(os.getpgrp() == os.getpid())"]
TELL_RIGHTS = ["sh", "-c", "id -u; id -g; umask"]
LOCK = threading.Lock()  # stands for any lock of any module


def prepare():
    with LOCK:  # nobody in the child releases it
        os.setsid()


@broken(hangs(at="check_output("), posix=POSIX)
def function_prepares_the_child():
    ThreadPoolExecutor(1).submit(LOCK.acquire).result()  # in another thread
    check_output(TELL, preexec_fn=prepare, timeout=0.1)


@fixed(returns(b"True\n"), posix=POSIX)
def argument_prepares_the_child():
    ThreadPoolExecutor(1).submit(LOCK.acquire).result()
    return check_output(TELL, stdin=DEVNULL, start_new_session=True, timeout=30)


@check(dies("SIGKILL") & leaves(1), posix=POSIX)
def stuck_child_outlives_its_parent():
    held, (forked, announce) = threading.Event(), os.pipe()

    def hold_until_the_fork():
        with LOCK:
            held.set()
            os.read(forked, 1)
        os.kill(os.getpid(), signal.SIGKILL)  # LOCK is free here, not in the child

    threading.Thread(target=hold_until_the_fork).start()
    held.wait()
    check_output(TELL, preexec_fn=lambda: os.write(announce, b".") and prepare())


@broken(raises(SubprocessError, "Exception occurred in preexec_fn."), posix=POSIX)
def function_loses_the_cause():
    check_output(TELL, preexec_fn=lambda: os.chdir("missing"))


@fixed(raises(FileNotFoundError, "[Errno 2] No such file or directory: 'missing'"), posix=POSIX)
def argument_names_the_cause():
    check_output(TELL, cwd="missing", stdin=DEVNULL, timeout=30)


LAUNCHER = """\
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.execvp(sys.argv[1], sys.argv[1:])
"""


@fixed(returns(b"64\n"), posix=POSIX)
def launcher_sets_a_limit():
    argv = [sys.executable, "-I", "-c", LAUNCHER, "sh", "-c", "ulimit -n"]
    return check_output(argv, stdin=DEVNULL, timeout=30)


@check(
    returns((b"False\n", b"True\n")),
    since=(3, 11),
    before=raises(TypeError, "unexpected keyword argument 'process_group'"),
    posix=POSIX,
)
def group_without_a_session():
    options = {"process_group": 0, "timeout": 30}
    return check_output(TELL, **options), check_output(TELL_GROUP, **options)


@check(returns(True), since=(3, 9), posix=POSIX)
def rights_have_arguments():
    rights = {"user": os.getuid(), "group": os.getgid(), "umask": 0o27}
    output = check_output(TELL_RIGHTS, timeout=30, **rights)
    return output == b"%d\n%d\n0027\n" % (os.getuid(), os.getgid())


if __name__ == "__main__":
    main()
