"""Let signal handlers and `__del__` put into a SimpleQueue; there they must take no lock.

A handler runs between two steps of whatever the main thread does, and `__del__`
wherever the last reference goes or the garbage collector starts. Either may interrupt
the very code that holds the lock they want, and that code cannot go on before they
return. Event.set(), queue.Queue, an executor's submit() and shutdown() hold such a
lock; print() and logging raise RuntimeError when they interrupt themselves.

Scope: assigning to a plain attribute is safe as well, but wakes nobody.
    SimpleQueue.put() may interrupt itself, by its documentation. An RLock is no way
    out: it lets the same thread in, to data that is half changed.
Symptom: SIGTERM is ignored now and then. The program stands in acquire(), and the stack
    shows a handler, or __del__, above the function that holds the lock.
Look for: signal.signal() or __del__ whose function locks, logs, joins, or calls
    shutdown().
Sources: https://docs.python.org/3/library/queue.html#simplequeue-objects
    https://docs.python.org/3/library/signal.html
    https://github.com/python/cpython/issues/121649
"""

import gc
import io
import queue
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock

from kit import broken, check, fixed, hangs, main, raises, returns

LOCK = Lock()


@broken(hangs(at="with LOCK:"))
def handler_takes_a_lock():
    def stop(number, frame):
        with LOCK:
            stopped.append(number)

    stopped = []
    signal.signal(signal.SIGTERM, stop)
    with LOCK:
        signal.raise_signal(signal.SIGTERM)  # as it may come at any time


@fixed(returns(15))
def handler_puts():
    signals = SimpleQueue()
    signal.signal(signal.SIGTERM, lambda number, frame: signals.put(number))
    with LOCK:
        signal.raise_signal(signal.SIGTERM)
    return signals.get()  # here main waits for work, or for the signal


class Handle:
    def __init__(self, number, give_back):
        self.number, self.give_back, self.itself = number, give_back, self

    def __del__(self):
        self.give_back(self.number)


def give_back_under_lock(number):
    with LOCK:
        return number


def collect(give_back):
    with LOCK:
        Handle(3, give_back)
        gc.collect()  # as any allocation may


@broken(hangs(at="with LOCK:"))
def finalizer_takes_a_lock():
    collect(give_back_under_lock)


@fixed(returns(3))
def finalizer_puts():
    given_back = SimpleQueue()
    collect(given_back.put)
    return given_back.get()


class Interrupting(str):
    """A thread's name, whose text is made while submit() holds the pool's lock."""

    def __str__(self):
        signal.raise_signal(signal.SIGTERM)
        return "worker"


@broken(hangs(at="pool.shutdown("))
def handler_shuts_down():
    pool = ThreadPoolExecutor(1, thread_name_prefix=Interrupting("worker"))
    signal.signal(signal.SIGTERM, lambda *_: pool.shutdown(wait=False))
    pool.submit(abs, -1)


@fixed(returns((1, 15)))
def main_shuts_down():
    signals = SimpleQueue()
    pool = ThreadPoolExecutor(1, thread_name_prefix=Interrupting("worker"))
    signal.signal(signal.SIGTERM, lambda number, _: signals.put(number))
    future = pool.submit(abs, -1)
    number = signals.get()
    pool.shutdown()
    return future.result(), number


def handle_inside(lock, handle):
    signal.signal(signal.SIGTERM, lambda *_: handle())
    with lock:  # as set() and put() do for a moment
        signal.raise_signal(signal.SIGTERM)


@check(hangs(at="handle()"))
def event_set_is_not_safe():
    event = Event()
    handle_inside(event._cond, event.set)


@check(hangs(at="handle()"))
def queue_put_is_not_safe():
    messages = queue.Queue()
    handle_inside(messages.mutex, partial(messages.put, 1))


class Interrupted(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        signal.raise_signal(signal.SIGTERM)
        return len(data)


@check(raises(RuntimeError, "reentrant call inside"))
def print_is_not_safe():
    def handle(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        print("handled", file=stream, flush=True)

    stream = io.TextIOWrapper(io.BufferedWriter(Interrupted()))
    signal.signal(signal.SIGTERM, handle)
    print("work", file=stream, flush=True)


if __name__ == "__main__":
    main()
