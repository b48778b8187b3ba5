"""Run tasks in an executor and read every result; a failed thread leaves exit status 0.

A Thread keeps no result: its exception is printed, join() returns as if nothing had
happened, and so does the program. sys.exit() ends the thread, without a word. An
executor keeps result and exception for whoever asks; if nobody does, nothing is even
printed. Errors in add_done_callback() are only logged. Who reads from a producer that
died waits for ever.

Scope: `with` shows a failure when the others are done: `thread-explicit-shutdown`. A
    Thread of your own, such as an endless one, hands its failure on by the queue of its
    results, and is joined; join(timeout) always returns None: ask is_alive().
    Fire-and-forget takes a callback that logs exception().
Symptom: a task failed, and nothing says so. The exit status is 0. Or a traceback begins
    with "Exception in thread Thread-1", and the program goes on. Or main waits in
    get().
Look for: Thread(target=...) whose target can raise; submit() whose future is dropped.
Sources: https://docs.python.org/3/library/threading.html#threading.excepthook
    https://docs.python.org/3/library/concurrent.futures.html#future-objects
    https://github.com/tilezen/tilequeue/issues/131
"""

import contextlib
import io
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Thread

from kit import broken, check, exits, fixed, hangs, main, prints, raises, returns

TEXTS = ["9", "ten"]
INVALID = "invalid literal for int() with base 10: 'ten'"


@broken(returns("all done") & prints("Exception in thread Thread-"))
def join_alone():
    threads = [Thread(target=int, args=(text,)) for text in TEXTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return "all done"


@fixed(raises(ValueError, INVALID))
def read_every_result():
    with ThreadPoolExecutor(max_workers=4) as pool:
        futures = [pool.submit(int, text) for text in TEXTS]
    return [future.result() for future in futures]


@broken(returns(""))
def nobody_asks():
    with contextlib.redirect_stderr(io.StringIO()) as printed, ThreadPoolExecutor(1) as pool:
        for text in TEXTS:
            pool.submit(int, text)
    return printed.getvalue()


@fixed(raises(ValueError, INVALID))
def map_asks():
    with ThreadPoolExecutor(1) as pool:
        return list(pool.map(int, TEXTS))


@broken(returns(9) & prints("exception calling callback for <Future at "))
def errors_in_callbacks_are_logged():
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(int, "9")
        future.add_done_callback(lambda _: int("ten"))
    return future.result()


def parse(put):
    for text in TEXTS:
        put(int(text))
    put(None)


@broken(hangs(at="iter(queue.get, None)"))
def wait_for_a_dead_producer():
    queue = SimpleQueue()
    Thread(target=parse, args=(queue.put,)).start()
    return list(iter(queue.get, None))


@fixed(raises(ValueError, INVALID))
def a_dead_producer_sends_the_end():
    queue = SimpleQueue()
    with ThreadPoolExecutor(1) as pool:
        producer = pool.submit(parse, queue.put)
        producer.add_done_callback(lambda _: queue.put(None))
        numbers = list(iter(queue.get, None))
    producer.result()
    return numbers


@check(returns(""))
def sys_exit_in_a_thread_ends_the_thread():
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        thread = Thread(target=sys.exit, args=(7,))
        thread.start()
        thread.join()
    return printed.getvalue()


@check(exits(7))
def an_executor_hands_it_on():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(sys.exit, 7).result()


@check(returns((None, True, None, False)))
def join_does_not_say_whether_it_ended():
    release = threading.Event()
    thread = Thread(target=release.wait)
    thread.start()
    answers = [thread.join(timeout=0.01), thread.is_alive()]
    release.set()
    return (*answers, thread.join(timeout=60), thread.is_alive())


if __name__ == "__main__":
    main()
