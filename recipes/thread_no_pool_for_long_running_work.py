"""Give endless work a thread of its own, stopped before main ends; not a pool, nor atexit.

At exit the interpreter first waits for the threads of every pool, then for all others that
are not daemons, and only then runs atexit functions. What an atexit function was to
stop is waited for before that function runs. Work that ends only when it is told to needs
an owner that tells it, and joins it, while main still runs.

Scope: tasks that end by themselves belong in a pool. Once main has ended, submit()
    raises: join who submits before that.
Symptom: the program has finished, but does not exit. Or, at exit: RuntimeError: cannot
    schedule new futures after interpreter shutdown.
Look for: submit() of a function with an endless loop; a stop event set in atexit or __del__.
Sources: https://docs.python.org/3/library/concurrent.futures.html#threadpoolexecutor
    https://docs.python.org/3/library/atexit.html
    https://github.com/python/cpython/issues/80961
"""

import atexit
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

from kit import broken, check, fixed, hangs, main, prints, returns


def listen(stop, heard):
    while not stop.is_set():
        heard.append("tick")
        stop.wait()  # stands for a read that stopping wakes


@broken(hangs(at="stop.wait()"))
def pool_stopped_in_atexit():
    stop = threading.Event()
    atexit.register(stop.set)  # runs after the pool was waited for
    ThreadPoolExecutor(max_workers=1).submit(listen, stop, [])


@broken(hangs(at="stop.wait()"))
def thread_stopped_in_atexit():
    stop = threading.Event()
    atexit.register(stop.set)  # runs after the thread was waited for
    threading.Thread(target=listen, args=(stop, [])).start()


@contextlib.contextmanager
def listening():
    stop, heard = threading.Event(), []
    thread = threading.Thread(target=listen, args=(stop, heard))
    thread.start()
    try:
        yield heard
    finally:
        stop.set()
        thread.join()


@fixed(returns(["tick"]))
def thread_stopped_before_main_ends():
    with listening() as heard:
        pass  # the program's work
    return heard


@check(prints("cannot schedule new futures after interpreter shutdown") & returns(None))
def submit_in_atexit_is_refused():
    pool = ThreadPoolExecutor(max_workers=1)
    atexit.register(pool.submit, print, "never printed")


if __name__ == "__main__":
    main()
