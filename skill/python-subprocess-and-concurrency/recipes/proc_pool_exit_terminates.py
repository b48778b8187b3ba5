"""Read a multiprocessing.Pool's results inside its `with`: the end of it kills the workers.

Pool.__exit__() is terminate(), not close() and join(). Tasks that run are cut off and
tasks that wait are dropped, in silence and with status 0. A result that was not there
by then never comes: get() and next() wait for ever. An executor's `with` waits.

Scope: map(), starmap() and apply() have waited when they return; it is the *_async ones,
    imap() and imap_unordered() that have not. Where results are not wanted, close() and
    join() inside the `with`: but errors are in the results alone.
Symptom: get() never returns, all workers are gone. Or files that the tasks should write
    are missing or cut, now and then, and the exit status is 0.
Look for: `with Pool` around apply_async(), map_async(), imap(); a return of them.
Sources: https://docs.python.org/3/library/multiprocessing.html#multiprocessing.pool.Pool
    https://github.com/python/cpython/issues/126743
"""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from kit import broken, check, fixed, hangs, leaves, main, returns

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


@broken(returns(False) & leaves(files=1))
def nobody_waits():
    with SPAWN.Pool(1) as pool:
        pool.apply_async(work, [1])
        pool.apply_async(Path("done").touch)
    GO.touch()
    return Path("done").exists()


@fixed(returns(True) & leaves(files=2))
def close_and_join():
    with SPAWN.Pool(1) as pool:
        pool.apply_async(work, [1])
        pool.apply_async(Path("done").touch)
        GO.touch()
        pool.close()
        pool.join()
    return Path("done").exists()


def lazy():
    with SPAWN.Pool(1) as pool:
        return pool.imap(work, [1])


@broken(hangs(at="list(results)"))
def iterate_after_the_end():
    results = lazy()
    GO.touch()
    return list(results)


def fail():
    raise ValueError("no")


@check(returns(None))
def errors_are_in_the_results_alone():
    with SPAWN.Pool(1) as pool:
        pool.apply_async(fail)
        pool.close()
        pool.join()


@fixed(returns([1, 2]) & leaves(files=1))
def executor_waits():
    with ProcessPoolExecutor(2, SPAWN) as pool:
        results = pool.map(work, [1, 2])
        GO.touch()
    return list(results)


if __name__ == "__main__":
    main()
