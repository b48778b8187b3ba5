"""Set SIGCHLD to SIG_DFL, and wait for pids of your own only: a status is read but once.

Where SIGCHLD is ignored, or something waits for any child, the status is gone when
subprocess asks for it. Popen then takes the child for ended, with 0: each failure looks
like success, to check=True, too, and nothing is logged. asyncio makes it 255, with a
warning. exec keeps an ignored signal, and restore_signals leaves this one alone: a
program starts like that where a daemon, a shell or a launcher before it ignores it.

Scope: POSIX. Only the main thread can set it: a library looks at getsignal(), and
    refuses. A handler that reaps nothing is harmless, and no child inherits it. Orphans
    are for an init: `sp-reap-as-pid-1`.
Symptom: CalledProcessError never comes. The returncode is always 0. In asyncio it is
    255, and the log says: will report returncode 255.
Look for: SIGCHLD with SIG_IGN; os.wait(), waitpid(-1, ...) or waitid(P_ALL, ...).
Sources: https://man7.org/linux/man-pages/man2/wait.2.html
    https://github.com/python/cpython/issues/96863
    https://github.com/enricai/leerie/pull/58
"""

import asyncio
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from subprocess import DEVNULL, PIPE, CalledProcessError, Popen, check_output, run

from kit import broken, check, fixed, main, prints, raises, returns

TELL = "import signal; print(signal.getsignal(signal.SIGCHLD).name)"
POSIX = "there is no SIGCHLD elsewhere"


def ignore_children():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@broken(returns("deployed"), posix=POSIX)
def deploy_whatever_happens():
    ignore_children()  # here, or in who started this program
    run(["false"], stdin=DEVNULL, timeout=30, check=True)
    return "deployed"


def keep_statuses():
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


@fixed(raises(CalledProcessError, "returned non-zero exit status 1."), posix=POSIX)
def deploy_or_fail():
    ignore_children()
    keep_statuses()  # first of all
    run(["false"], stdin=DEVNULL, timeout=30, check=True)
    return "deployed"


@broken(returns(0), posix=POSIX)
def wait_for_any_child():
    child = Popen(["false"])
    os.waitpid(-1, 0)  # another part of the program
    return child.wait(30)


@fixed(returns(1), posix=POSIX)
def wait_for_the_own_child():
    child = Popen(["false"])
    own = os.posix_spawnp("true", ["true"], os.environ)
    os.waitpid(own, 0)
    return child.wait(30)


def wait_until_gone(child):
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


@broken(returns(0), posix=POSIX)
def handler_waits_for_any():
    def reap(signum, frame):
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    signal.signal(signal.SIGCHLD, reap)
    child = Popen(["false"])
    wait_until_gone(child)
    return child.wait(30)


@fixed(returns((1, True)), posix=POSIX)
def handler_tells_and_leaves_the_status():
    ended = []
    signal.signal(signal.SIGCHLD, lambda *_: ended.append(True))
    child = Popen(["false"])
    wait_until_gone(child)
    return child.wait(30), any(ended)


@check(returns((b"SIG_IGN\n", b"SIG_DFL\n")), posix=POSIX)
def ignoring_is_inherited_a_handler_is_not():
    argv, options = [sys.executable, "-c", TELL], {"restore_signals": True, "timeout": 60}
    ignore_children()
    ignoring = check_output(argv, **options)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return ignoring, check_output(argv, **options)


@check(returns(255) & prints("will report returncode 255"), posix=POSIX)
def asyncio_says_255():
    async def status():
        argv = ["sh", "-c", "read line; exit 1"]
        child = await asyncio.create_subprocess_exec(*argv, stdin=PIPE)
        await child.communicate(b"line\n")
        return child.returncode

    ignore_children()
    return asyncio.run(status())


@check(raises(ValueError, "signal only works in main thread"), posix=POSIX)
def main_thread_alone_sets_it():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(keep_statuses).result()


if __name__ == "__main__":
    main()
