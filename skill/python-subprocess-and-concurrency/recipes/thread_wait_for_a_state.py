"""Wait for a state, with wait_for() or an Event; a notify() that came earlier is lost.

A Condition remembers nothing: notify() wakes those who wait at that moment, and who
comes later waits for the next one. Who is woken may find that another thread was
faster. So keep the state in a variable, change it under the condition's lock, and let
wait_for() look at it before the first wait and after each. An Event is such a variable.

Scope: a Queue, a Future or an Event does this for you. Barrier.wait() and Queue.join()
    wait for ever when a party is missing or has died: give the Barrier a timeout, call
    task_done() in `finally` and let the consumer go on. From 3.13 on Queue.shutdown()
    wakes who waits in get().
Symptom: a thread in wait() misses what has happened. It hangs now and then, and never
    under a debugger. Or IndexError: pop from empty list.
Look for: Condition.wait() without a loop or wait_for(); Barrier without a timeout;
    Queue.join().
Sources: https://docs.python.org/3/library/threading.html#condition-objects
    https://docs.python.org/3/library/queue.html
"""

from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Barrier, BrokenBarrierError, Condition, Event, Semaphore, Thread

from kit import broken, check, fixed, hangs, main, raises, returns


def work(changed, results):
    with changed:
        results.append("done")
        changed.notify_all()


@broken(hangs(at="changed.wait()"))
def wait_for_a_notification():
    changed, results = Condition(), []
    thread = Thread(target=work, args=(changed, results))
    thread.start()
    thread.join()  # stands for a thread that is faster
    with changed:
        changed.wait()
    return results


@fixed(returns(["done"]))
def wait_for_a_result():
    changed, results = Condition(), []
    thread = Thread(target=work, args=(changed, results))
    thread.start()
    thread.join()
    with changed:
        if not changed.wait_for(lambda: results, timeout=60):
            raise TimeoutError("no result in time")
    return results


def wake_two_consumers(wait, *things):
    def consume():
        with changed:
            waits.release()  # the lock is free for main when both wait
            wait(changed, items)
            return items.pop()

    changed, waits, items = Condition(), Semaphore(0), []
    with ThreadPoolExecutor(2) as pool:
        consumers = [pool.submit(consume) for _ in range(2)]
        for _ in consumers:
            waits.acquire()
        for thing in things:
            with changed:
                items.append(thing)
                changed.notify_all()
    return sorted(consumer.result() for consumer in consumers)


@broken(raises(IndexError, "pop from empty list"))
def woken_is_taken_for_served():
    return wake_two_consumers(lambda changed, items: changed.wait(), "one")


@fixed(returns(["one", "two"]))
def woken_looks_again():
    return wake_two_consumers(lambda changed, items: changed.wait_for(lambda: items), "one", "two")


@check(returns((True, False)))
def an_event_remembers():
    early, late = Event(), Event()
    early.set()
    return early.wait(), late.wait(timeout=0.01)


@broken(hangs(at="together.wait()"))
def barrier_without_the_other_party():
    together = Barrier(2)
    together.wait()


@fixed(raises(BrokenBarrierError, ""))
def barrier_with_a_timeout():
    together = Barrier(2, timeout=0.1)
    together.wait()


def parse(tasks, numbers):
    for text in iter(tasks.get, None):
        numbers.append(int(text))
        tasks.task_done()


def parse_and_go_on(tasks, numbers):
    for text in iter(tasks.get, None):
        try:
            numbers.append(int(text))
        except ValueError as error:
            numbers.append(str(error))
        finally:
            tasks.task_done()


def put_and_join(consume):
    tasks, numbers = Queue(), []
    Thread(target=consume, args=(tasks, numbers)).start()
    for text in ["9", "ten", "11"]:
        tasks.put(text)
    tasks.join()
    tasks.put(None)
    return numbers


@broken(hangs(at="tasks.join()"))
def consumer_dies():
    return put_and_join(parse)


@fixed(returns([9, "invalid literal for int() with base 10: 'ten'", 11]))
def consumer_goes_on():
    return put_and_join(parse_and_go_on)


@check(returns("ShutDown"), since=(3, 13), before=raises(AttributeError, "no attribute 'shutdown'"))
def a_queue_can_be_shut_down():
    tasks = Queue()
    shut_down = tasks.shutdown
    with ThreadPoolExecutor(1) as pool:
        getting = pool.submit(tasks.get)
        shut_down()
        return type(getting.exception()).__name__


if __name__ == "__main__":
    main()
