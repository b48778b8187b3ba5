"""Give workers module-level functions and plain data; no lambda, local class or handle.

What crosses to a worker is pickled, functions and classes as a name that the worker
imports. What has no such name (a lambda, a nested function, what was typed at a prompt)
and what is a handle (lock, file, generator) is refused. Where that shows depends: on
the future, in Process.start(), or with multiprocessing.Queue only on stderr, while the
reader waits for ever. An exception that cannot be rebuilt from its args breaks an
executor and hangs a Pool: pass them all to super().__init__().

Scope: not needed with threads, which share memory. Under fork a Process inherits its
    target and arguments, but what goes through a pool or a queue is pickled under every
    start method.
Symptom: PicklingError: Can't pickle <function <lambda>>. Or AttributeError: Can't
    pickle local object; TypeError: cannot pickle '_thread.lock' object; RuntimeError:
    Queue objects should only be shared between processes through inheritance. Or a
    traceback of QueueFeederThread on stderr, and then nothing.
Look for: lambda or a nested function in submit(), map(), apply() or put(); exceptions
    with an __init__ of their own.
Sources: https://docs.python.org/3/library/pickle.html#what-can-be-pickled-and-unpickled
    https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Queue
"""

import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from multiprocessing.pool import MaybeEncodingError
from pickle import PicklingError

from kit import broken, check, fixed, hangs, main, prints, raises, returns

TYPED_AT_A_PROMPT = """\
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
def double(number):
    return 2 * number
ProcessPoolExecutor(1, get_context("spawn")).submit(double, 4).result()
"""


def new_pool():
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


SCALES = {"double": lambda number: 2 * number}


def scale(factor, number):
    return factor * number


@broken(raises(PicklingError, "Can't pickle <function <lambda> at"))
def submit_a_lambda():
    with new_pool() as pool:
        return pool.submit(SCALES["double"], 2).result()


@fixed(returns(4))
def submit_a_function():
    with new_pool() as pool:
        return pool.submit(partial(scale, 2), 2).result()


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status} {text}")


class RefusedWithArgs(Exception):
    def __init__(self, status, text):
        super().__init__(status, text)  # what it is rebuilt from


def refuse(error):
    raise error(403, "no")


@broken(raises(BrokenProcessPool, "A process in the process pool was terminated abruptly"))
def exception_that_is_not_rebuilt():
    with new_pool() as pool:
        return pool.submit(refuse, Refused).result()


@broken(hangs(at="pool.apply("))
def exception_that_is_not_rebuilt_in_a_pool():
    with get_context("spawn").Pool(1) as pool:
        pool.apply(refuse, (Refused,))


@fixed(returns(["RefusedWithArgs(403, 'no')", 7]))
def exception_that_keeps_its_args():
    with new_pool() as pool:
        error = pool.submit(refuse, RefusedWithArgs).exception()
        return [repr(error), pool.submit(abs, -7).result()]


@broken(hangs(at="queue.get()") & prints("local object"))
def put_a_lambda():
    queue = get_context("spawn").Queue()
    queue.put(lambda: 0)  # a thread pickles it later, and fails
    return queue.get()


@fixed(returns(12))
def put_a_function():
    queue = get_context("spawn").Queue()
    queue.put(scale)
    return queue.get()(3, 4)


def give_a_local_function():
    return lambda: 0


def error_of(action, *args):
    try:
        action(*args)
    except (AttributeError, PicklingError) as error:
        return type(error).__name__


@check(
    returns((["AttributeError"] * 4, 7), until=(3, 13)) | returns((["PicklingError"] * 4, 7), since=(3, 14)),
)
def local_functions_are_refused_where_somebody_hears():
    context = get_context("spawn")
    with new_pool() as pool:
        local = give_a_local_function()
        errors = [
            error_of(pool.submit(local).result),
            error_of(pool.submit(give_a_local_function).result),
            error_of(context.SimpleQueue().put, local),
            error_of(context.Process(target=local).start),
        ]
        return errors, pool.submit(abs, -7).result()  # the pool goes on


@check(raises(MaybeEncodingError, "Error sending result"))
def unpicklable_result_of_a_pool():
    with get_context("spawn").Pool(1) as pool:
        pool.apply(give_a_local_function)


@check(raises(TypeError, "cannot pickle '_thread.lock' object"))
def handle_as_an_argument():
    with new_pool() as pool:
        pool.submit(id, threading.Lock()).result()


@check(returns([0, True]), posix="Windows has no fork")
def fork_inherits_the_target_alone():
    context = get_context("fork")
    child = context.Process(target=lambda: 0)
    child.start()
    child.join()
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return [child.exitcode, pool.submit(lambda: 0).exception() is not None]


@check(returns([True, True]))
def function_of_a_prompt_is_not_found():
    argv = [sys.executable, "-c", TYPED_AT_A_PROMPT]
    errors = subprocess.run(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE).stderr
    return [text in errors for text in (b"attribute 'double'", b"BrokenProcessPool")]


if __name__ == "__main__":
    main()
