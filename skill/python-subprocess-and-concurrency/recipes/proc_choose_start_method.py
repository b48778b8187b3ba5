"""Name the start method in get_context(); use spawn or forkserver, never fork with threads.

fork copies a process' memory, but only the thread that called it. A lock that another
thread holds is copied as held, and in the child nobody can release it: whoever takes it
there waits for ever. Client libraries and C code have locks, too. spawn starts a new
interpreter, forkserver forks from a server without threads; both import your module
anew.

Scope: fork is safe while there is one thread. It was Linux' default up to 3.13, then it
    is forkserver; Windows and macOS have spawn. Going back to fork for what cannot be
    pickled brings the hang back. set_start_method() is the program's to call, once. The
    server keeps the environment it was started with. Where a web server forks by itself
    (gunicorn), start threads after that.
Symptom: now and then join() waits for ever. It comes with load or more threads; the
    worker sleeps in `futex`. From 3.12 on `-W default` shows: DeprecationWarning: This
    process (pid=9) is multi-threaded, use of fork() may lead to deadlocks
Look for: get_context("fork"), set_start_method, Process or Pool without a context,
    os.fork().
Sources: https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods
    https://github.com/python/cpython/issues/125714
"""

import os
import subprocess
import sys
from multiprocessing import get_context, get_start_method, set_start_method
from threading import Barrier, Lock, Thread

from kit import broken, check, fixed, hangs, main, raises, returns

LOCK = Lock()
NO_FORK = "Windows has no fork"
MULTITHREADED_FORK = """\
from multiprocessing import get_context, pool
threads = pool.ThreadPool(1)
child = get_context("fork").Process(target=print)
child.start()
child.join()
"""


def work():
    with LOCK:
        pass


def hold(meet):
    with LOCK:
        meet.wait()
        meet.wait()


def start_beside_a_thread(method):
    meet = Barrier(2)
    Thread(target=hold, args=(meet,)).start()
    meet.wait()
    child = get_context(method).Process(target=work)
    child.start()
    meet.wait()  # frees the parent's lock, not its copy
    child.join()
    return child.exitcode


@broken(hangs(at="child.join()"), posix=NO_FORK)
def fork_beside_a_thread():
    return start_beside_a_thread("fork")


@fixed(returns(0))
def spawn_beside_a_thread():
    return start_beside_a_thread("spawn")


@fixed(returns(0), posix="Windows has no forkserver")
def forkserver_beside_a_thread():
    return start_beside_a_thread("forkserver")


@check(returns(0), posix=NO_FORK)
def fork_before_the_lock_is_held():
    child = get_context("fork").Process(target=work)
    child.start()
    with LOCK:
        child.join()
    return child.exitcode


@check(
    returns("fork", until=(3, 13)) | returns("forkserver", since=(3, 14)),
    linux="elsewhere spawn is the default",
)
def default_start_method():
    return get_start_method()


@check(returns([False, True]), since=(3, 12), before=returns([False, False]), posix=NO_FORK)
def warning_is_not_shown():
    seen = []
    for options in ([], ["-W", "default"]):
        argv = [sys.executable, *options, "-c", MULTITHREADED_FORK]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
        seen.append(b"is multi-threaded, use of fork() may lead to deadlocks" in done.stderr)
    return seen


@check(raises(RuntimeError, "context has already been set"))
def program_chooses_once():
    for method in ("spawn", "spawn"):
        set_start_method(method)


@check(returns(["2", "1"]), posix="Windows has no forkserver")
def fork_server_keeps_its_first_environment():
    return [environment_of_second_pool(method) for method in ("spawn", "forkserver")]


def environment_of_second_pool(method):
    for number in "12":
        os.environ["NUMBER"] = number
        with get_context(method).Pool(1) as pool:
            seen = pool.apply(os.getenv, ("NUMBER",))
    return seen


if __name__ == "__main__":
    main()
