"""Wait for a future outside its pool; a task that waits for its own pool keeps a worker.

A task that waits occupies its thread until the answer is there. If every thread waits
for a task that is still queued, nobody is left to run it: with one worker at once, with
N as soon as N such tasks meet, which small tests never do. result() on a future, map()
in a task, and an event that a queued task would set are all the same. More workers only
move the limit.

Scope: a pool for each level, as here, ends the waiting for a known number of levels.
    For recursion no number is enough: let main submit what a task returns (`walk` in
    the proof). A timeout turns the hang into a failure, and cures nothing.
Symptom: under load all workers wait. Nothing uses the CPU.
Look for: result(), wait(), as_completed() or map() inside a function given to submit().
Sources: https://docs.python.org/3/library/concurrent.futures.html#threadpoolexecutor
    https://github.com/xorq-labs/xorq/issues/2243
    https://github.com/langchain-ai/langchain/issues/10638
"""

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from threading import Barrier, Event

from kit import broken, check, fixed, hangs, main, returns

TREE = {"top": ["left", "right"], "left": ["leaf"], "right": [], "leaf": []}


def total(pool, parts):
    futures = [pool.submit(len, part) for part in parts]
    return sum(future.result() for future in futures)


@broken(hangs(at="totals.result()"))
def one_pool_for_both():
    with ThreadPoolExecutor(max_workers=1) as pool:
        totals = pool.submit(total, pool, ["ab", "cde"])
        return totals.result()


@fixed(returns(5))
def a_pool_for_each_level():
    new_pool = ThreadPoolExecutor
    with new_pool(max_workers=1) as inner, new_pool(max_workers=1) as outer:
        totals = outer.submit(total, inner, ["ab", "cde"])
        return totals.result()


def total_when_all_wait(together, pool):
    together.wait()  # as under load: all workers are in such a task
    return total(pool, ["ab", "cde"])


@broken(hangs(at="sum("))
def more_workers_move_the_limit():
    together = Barrier(8)
    with ThreadPoolExecutor(max_workers=8) as pool:
        futures = [pool.submit(total_when_all_wait, together, pool) for _ in range(8)]
        return sum(future.result() for future in futures)


@fixed(returns(40))
def one_worker_for_those_who_wait_for_none():
    together = Barrier(8)
    with ThreadPoolExecutor(max_workers=1) as inner, ThreadPoolExecutor(max_workers=8) as outer:
        futures = [outer.submit(total_when_all_wait, together, inner) for _ in range(8)]
        return sum(future.result() for future in futures)


def count_inside(pool, name):
    return 1 + sum(pool.map(count_inside, [pool] * len(TREE[name]), TREE[name]))


@broken(hangs(at="counting.result()"))
def recursion_inside_the_pool():
    with ThreadPoolExecutor(max_workers=2) as pool:
        counting = pool.submit(count_inside, pool, "top")
        return counting.result()


def walk(pool, first, children_of):
    """Calls children_of() for `first`, for all that it returns, and so on; returns all."""
    found, pending = [first], {pool.submit(children_of, first)}
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for children in [future.result() for future in done]:
            found += children
            pending |= {pool.submit(children_of, child) for child in children}
    return found


@fixed(returns(["leaf", "left", "right", "top"]))
def main_submits_what_tasks_return():
    with ThreadPoolExecutor(max_workers=1) as pool:
        return sorted(walk(pool, "top", TREE.get))


@check(hangs(at="waits.result()"))
def an_event_is_no_better():
    ready = Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        waits = pool.submit(ready.wait)
        pool.submit(ready.set)
        return waits.result()


if __name__ == "__main__":
    main()
