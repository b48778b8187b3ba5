"""What functions and their callers do to whoever runs them in processes."""

import os
import signal
import threading
import time
import traceback

from kit import check, main, prints, raises, returns

POSIX = "signals"
LOCK = threading.Lock()  # stands for any lock of any module


def attempt(function, items):
    """What the answer makes of it: what it returns, or "failed", with the traceback printed."""
    from answer import map_processes

    try:
        return map_processes(function, items)
    except Exception:  # noqa: BLE001 - whatever the answer raises is its way to fail
        traceback.print_exc()
        return "failed"


def square(number):
    return number * number


def process_of(_):
    time.sleep(0.2)  # or one process could take all items
    return os.getpid()


def fail_at_seven(number):
    if number == 7:
        raise ValueError("cannot score seven")
    return number


def die_at_seven(number):
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def leave_at_seven(number):
    if number == 7:
        os._exit(0)
    return number


def fail_beside_others(number):
    if number == 0:
        threading.Event().wait()
    raise ValueError("cannot score it")


def take_the_lock(number):
    with LOCK:
        return number


def large(number):
    return b"x" * 1_000_000


def return_what_cannot_be_sent(number):
    return lambda: number


def interrupt_or_compute(caller):
    if caller:
        interrupt_when_it_waits(caller)
    threading.Event().wait()


def interrupt_when_it_waits(process):
    """Once only, and not before it has slept for a while: starting or ending workers, no answer is safe from it."""
    asleep = 0
    while asleep < 20:
        time.sleep(0.01)
        with open(f"/proc/{process}/stat", encoding="utf-8") as stat:
            asleep = asleep + 1 if stat.read().rpartition(")")[2].split()[0] == "S" else 0
    os.kill(process, signal.SIGINT)


@check(returns([number * number for number in range(200)]))
def results_are_in_order():
    """the request itself"""
    return attempt(square, list(range(200)))


@check(returns(True))
def processes_are_used():
    """the request itself: more than one process, and not ours"""
    used = set(attempt(process_of, list(range(20))))
    return len(used) > 1 and os.getpid() not in used


@check(returns([]))
def nothing_to_do_is_no_failure():
    """the request itself: an empty list"""
    return attempt(square, [])


@check(returns("failed") & prints("cannot score seven"))
def failure_says_why():
    """the request itself: the function raises for one item"""
    return attempt(fail_at_seven, list(range(20)))


@check(returns("failed"), posix=POSIX)
def dead_worker_is_a_failure():
    """proc-expect-a-broken-pool: a worker is killed, as the kernel does when memory is short"""
    return attempt(die_at_seven, list(range(20)))


@check(returns("failed"))
def worker_that_left_is_a_failure():
    """proc-expect-a-broken-pool: a worker ends with status 0, as C libraries do"""
    return attempt(leave_at_seven, list(range(20)))


@check(returns("failed") & prints("cannot score it"))
def failure_ends_the_others():
    """proc-kill-a-stuck-worker: one item fails while another one computes without end"""
    return attempt(fail_beside_others, list(range(20)))


@check(returns([0, 1, 2, 3]))
def lock_of_a_thread_is_not_inherited():
    """proc-choose-start-method: a thread of ours holds a lock that the function takes"""
    held = threading.Event()

    def hold():
        with LOCK:
            held.set()
            threading.Event().wait()

    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    return attempt(take_the_lock, list(range(4)))


@check(returns([1_000_000] * 8))
def large_results_come_back():
    """proc-message-pass: a megabyte for each item"""
    return [len(result) for result in attempt(large, list(range(8)))]


@check(returns("failed"))
def result_that_cannot_be_sent_is_a_failure():
    """proc-top-level-and-picklable: the function returns a lambda"""
    return attempt(return_what_cannot_be_sent, list(range(4)))


@check(raises(KeyboardInterrupt, ""), linux="who sleeps is read in /proc")
def interrupt_ends_all():
    """proc-stop-cooperatively: Ctrl-C reaches us alone, while two workers compute without end"""
    return attempt(interrupt_or_compute, [os.getpid(), 0])


if __name__ == "__main__":
    main()
