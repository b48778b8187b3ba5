"""Read a multiprocessing.Pool's results inside its `with`: the end of it kills the workers.

Pool.__exit__() is terminate(), not close() and join(). Tasks that run are cut off and
tasks that wait are dropped, in silence and with status 0. A result that was not there
by then never comes: get() and next() wait for ever. The end of the program terminates
a forgotten Pool, too. An executor's `with` waits.

Scope: map(), starmap() and apply() have waited when they return; it is the *_async ones,
    imap() and imap_unordered() that have not. Where results are not wanted, close() and
    join() inside the `with`: but errors are in the results alone. After an error in the
    `with` the end is what one wants.
Symptom: get() never returns, all workers are gone. Or files that the tasks should write
    are missing or cut, now and then, and the exit status is 0.
Look for: `with Pool` around apply_async(), map_async(), imap(); a return of them.
Sources: https://docs.python.org/3/library/multiprocessing.html#multiprocessing.pool.Pool
    https://github.com/python/cpython/issues/126743
    https://github.com/python/cpython/issues/74140
"""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from kit import broken, check, fixed, hangs, leaves, main, raises, returns

SPAWN = get_context("spawn")
GO = Path("go")


def work(item):
    while not GO.exists():
        time.sleep(0.01)
    return item


@broken(hangs(at="result.get()"))
def read_after_the_end():
    with SPAWN.Pool(2) as pool:
        result = pool.map_async(work, [1, 2])
    GO.touch()
    return result.get()


@fixed(returns([1, 2]) & leaves(files=1))
def read_before_the_end():
    with SPAWN.Pool(2) as pool:
        result = pool.map_async(work, [1, 2])
        GO.touch()
        return result.get()


def write(path):
    with path.open("w") as file:
        print("begun", file=file, flush=True)
        work(None)
        print("done", file=file)


def read(path):
    return path.read_text().split() if path.exists() else []


A, B = Path("a"), Path("b")


@broken(returns([["begun"], []]) & leaves(files=2))
def nobody_waits():
    with SPAWN.Pool(1) as pool:
        pool.map_async(write, [A, B], chunksize=1)
        while not read(A):
            pass
    GO.touch()
    return [read(A), read(B)]


@fixed(returns([["begun", "done"]] * 2) & leaves(files=3))
def close_and_join():
    with SPAWN.Pool(1) as pool:
        pool.map_async(write, [A, B], chunksize=1)
        GO.touch()
        pool.close()
        pool.join()
    return [read(A), read(B)]


def return_lazy_results():
    with SPAWN.Pool(1) as pool:
        return pool.imap(work, [1, 2])


@broken(hangs(at="list(results)"))
def iterate_after_the_end():
    results = return_lazy_results()
    GO.touch()
    return list(results)


def yield_results():
    with SPAWN.Pool(1) as pool:
        yield from pool.imap(work, [1, 2])


@fixed(returns([1, 2]) & leaves(files=1))
def iterate_before_the_end():
    results = yield_results()
    GO.touch()
    return list(results)


@check(returns([[1], [2], 3]) & leaves(files=1))
def some_have_waited():
    GO.touch()
    with SPAWN.Pool(1) as pool:
        return [pool.map(work, [1]), pool.starmap(work, [[2]]), pool.apply(work, [3])]


def fail():
    raise ValueError("no")


@check(returns(None))
def errors_are_in_the_results_alone():
    with SPAWN.Pool(1) as pool:
        pool.apply_async(fail)
        pool.close()
        pool.join()


@check(raises(ValueError, "no"))
def error_in_the_with_does_not_wait():
    with SPAWN.Pool(1) as pool:
        pool.apply_async(work, [1])
        fail()


POOLS = []


@check(returns(["begun"]) & leaves(files=1))
def end_of_the_program_does_the_same():
    POOLS.append(SPAWN.Pool(1))
    POOLS[0].apply_async(write, [A])
    while not read(A):
        pass
    return read(A)


@fixed(returns([1, 2]) & leaves(files=1))
def executor_waits():
    with ProcessPoolExecutor(2, SPAWN) as pool:
        results = pool.map(work, [1, 2])
        GO.touch()
    return list(results)


if __name__ == "__main__":
    main()
