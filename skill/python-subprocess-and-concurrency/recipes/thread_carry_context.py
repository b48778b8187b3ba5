"""Submit copy_context().run for each task; context variables do not cross into threads.

A worker thread has a context of its own, in which a ContextVar has its default: the
request id, the user or the decimal precision of whoever submitted is gone, and nothing
is raised. threading.local() is worse in a pool: it belongs to the thread, so that what
one task has left there the next one finds. A copy of the context belongs to one task.

Scope: not needed for arguments, which are the plainest way. Copy for each task: a
    context that is in use cannot be entered twice. asyncio.to_thread() copies,
    run_in_executor() does not. Thread(context=) and `-X thread_inherit_context=1` came
    with 3.14 (the latter is the default without a GIL, by its documentation): a pool's
    thread inherits from whoever caused its start.
Symptom: log lines of threads lack the request id. Or they show another's. Or
    RuntimeError: cannot enter context: <...> is already entered.
Look for: ContextVar or threading.local beside submit(), map(), run_in_executor(),
    Thread.
Sources: https://docs.python.org/3/library/contextvars.html
    https://docs.python.org/3/library/threading.html#threading.Thread
"""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from threading import Event, Thread

from kit import broken, check, fixed, main, raises, returns

USER = ContextVar("user", default="nobody")


@broken(returns("nobody"))
def task_starts_without_context():
    USER.set("ann")
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(USER.get).result()


@fixed(returns("ann"))
def task_runs_in_a_copy():
    USER.set("ann")
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(copy_context().run, USER.get).result()


def serve_in_turn(pool, greet):
    return [pool.submit(copy_context().run, greet, name).result() for name in ("ann", "")]


@broken(returns(["ann", "ann"]))
def what_a_task_left_in_the_thread():
    local = threading.local()

    def greet(name):
        local.user = name or getattr(local, "user", "nobody")
        return local.user

    with ThreadPoolExecutor(max_workers=1) as pool:
        return serve_in_turn(pool, greet)


@fixed(returns(["ann", "nobody"]))
def what_a_task_left_in_its_copy():
    def greet(name):
        USER.set(name or USER.get())
        return USER.get()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return serve_in_turn(pool, greet)


def enter_while_a_thread_is_in(first, second):
    entered, release = Event(), Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(first.run, lambda: (entered.set(), release.wait()))
        entered.wait()
        try:
            return second.run(USER.get)
        finally:
            release.set()


@broken(raises(RuntimeError, "is already entered"))
def one_copy_for_all():
    context = copy_context()
    return enter_while_a_thread_is_in(context, context)


@fixed(returns("bob"))
def a_copy_for_each():
    USER.set("bob")
    return enter_while_a_thread_is_in(copy_context(), copy_context())


@check(returns(["ann", "nobody"]))
def asyncio_has_both_kinds():
    async def ask():
        USER.set("ann")
        in_executor = asyncio.get_running_loop().run_in_executor
        return [await asyncio.to_thread(USER.get), await in_executor(None, USER.get)]

    return asyncio.run(ask())


@check(returns(["ann"]), since=(3, 14), before=raises(TypeError, "keyword argument 'context'"))
def a_thread_takes_a_context():
    USER.set("ann")
    seen = []
    thread = Thread(target=lambda: seen.append(USER.get()), context=copy_context())
    thread.start()
    thread.join()
    return seen


INHERIT = """\
import contextvars
from concurrent.futures import ThreadPoolExecutor

user = contextvars.ContextVar("user", default="nobody")
with ThreadPoolExecutor(1) as pool:
    for name in ("ann", "bob"):
        user.set(name)
        print(pool.submit(user.get).result())
"""


def names_seen(option):
    argv = [sys.executable, "-X", option, "-c", INHERIT]
    return subprocess.check_output(argv, stdin=subprocess.DEVNULL, timeout=60).split()


@check(returns([b"ann", b"ann"]), since=(3, 14), before=returns([b"nobody", b"nobody"]))
def an_inherited_context_goes_stale():
    return names_seen("thread_inherit_context=1")


@check(returns([b"nobody", b"nobody"]))
def none_is_inherited():
    return names_seen("thread_inherit_context=0")


if __name__ == "__main__":
    main()
