"""Hand results to one owner; what threads must share has one lock, and locks one order.

Between reading a value and writing it back another thread may have its turn: its change
is overwritten, and nothing is raised. A bare `n += 1` loses updates up to Python 3.9
(without a GIL on any, unproven), and what calls a function in between on every version.
Two threads that each hold the lock which the other wants never move; nor does one that
holds a lock and waits for what others do under it. Queue, results and one order of
locks leave nothing to chance.

Scope: not needed for what nobody changes. Calls take locks that you do not see: logging
    holds its handler's while it formats your objects, so format before. A generator
    takes one caller at a time; threading.serialize_iterator() (3.15) lets others wait.
Symptom: counts come out too low, now and then. Or two threads stand in acquire(), each
    with the lock of the other. Or ValueError: generator already executing.
Look for: += on what threads share; `with lock:` around get(), put(), a call to the
    outside, another lock; __str__ that takes a lock.
Sources: https://docs.python.org/3/library/queue.html
    https://docs.python.org/3/library/threading.html#lock-objects
    https://github.com/storaged-project/blivet/issues/1500
"""

import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from threading import Barrier, Event, Lock, Thread

from kit import broken, check, fixed, hangs, main, prints, raises, returns


@broken(returns(1))
def each_thread_adds():
    together, total = Barrier(2), [0]

    def add(amount):
        seen = total[0]
        together.wait()  # stands for a switch of threads
        total[0] = seen + amount

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, [1, 1]))
    return total[0]


@fixed(returns(2))
def one_owner_adds():
    together = Barrier(2)

    def find(amount):
        together.wait()
        return amount

    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(find, [1, 1]))


@check(returns("lost", until=(3, 9)) | returns("kept", since=(3, 10)), free_threaded=returns("lost"))
def bare_increments_are():
    def increment():
        nonlocal number
        for _ in range(50_000):
            number += 1

    sys.setswitchinterval(1e-6)
    for _ in range(20):  # the first loss decides
        number = 0
        with ThreadPoolExecutor(2) as pool:
            pool.submit(increment)
            pool.submit(increment)
        if number != 100_000:
            return "lost"
    return "kept"


@broken(hangs(at="with second:"))
def locks_in_opposite_order():
    def take(first, second):
        with first:
            together.wait()
            with second:
                return True

    a, b, together = Lock(), Lock(), Barrier(2)
    Thread(target=take, args=(a, b)).start()
    return take(b, a)


@fixed(returns(20_000))
def locks_in_one_order():
    def take(*locks):
        nonlocal number
        with ExitStack() as held:
            for lock in sorted(locks, key=id):
                held.enter_context(lock)
            number = int(str(number)) + 1  # calls, so that others have their turn

    sys.setswitchinterval(1e-6)
    a, b, number = Lock(), Lock(), 0
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(take, [a, b] * 10_000, [b, a] * 10_000))
    return number


@check(hangs(at="with lock:"))
def lock_held_over_a_blocking_call():
    def get():
        with lock:
            holds.set()
            return queue.get()

    lock, queue, holds = Lock(), SimpleQueue(), Event()
    Thread(target=get).start()
    holds.wait()
    with lock:
        queue.put("item")


class Device:
    def __init__(self):
        self.lock, self.held, self.formats = Lock(), Event(), Event()
        Thread(target=self.work).start()
        self.held.wait()

    def work(self):
        with self.lock:
            self.held.set()
            self.formats.wait()
            logging.warning("works")

    def __str__(self):
        self.formats.set()
        with self.lock:
            return "device"


@broken(hangs(at="with self.lock:"))
def format_under_the_lock_of_logging():
    logging.warning("%s", Device())


@fixed(returns(None) & prints("WARNING:root:device"))
def format_before_logging():
    logging.warning("%s", str(Device()))


def begun_in(pool, wrap):
    """Returns an iterator in which a thread stands, the call of that thread, and what lets it go on."""

    def numbers():
        entered.set()
        release.wait()
        yield from (1, 2)

    entered, release, shared = Event(), Event(), wrap(numbers())
    call = pool.submit(next, shared)
    entered.wait()
    return shared, call, release.set


@check(raises(ValueError, "generator already executing"))
def a_generator_takes_one_caller():
    with ThreadPoolExecutor(1) as pool:
        shared, _, let_go = begun_in(pool, iter)
        try:
            next(shared)
        finally:
            let_go()


@check(returns([1, 2]), since=(3, 15), before=raises(AttributeError, "'serialize_iterator'"))
def a_serialized_one_lets_others_wait():
    with ThreadPoolExecutor(2) as pool:
        shared, first, let_go = begun_in(pool, threading.serialize_iterator)
        second = pool.submit(next, shared)
        let_go()
        return [first.result(), second.result()]


if __name__ == "__main__":
    main()
