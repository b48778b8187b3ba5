"""Get what a child sends before you join it; give a pipe one writer and close your copy.

Queue.put() returns before anything is written: a thread of the child writes to a pipe,
which holds about 64 KiB, and the child does not exit before all is read. join() first
waits for a reader that waits for join(). A pipe ends only when every copy of its write
end is closed, the parent's own too. Two writers cut into each other's messages. A value
read from a manager is a copy: changing it changes nothing, until it is assigned again.

Scope: short messages hide the first fault. Queue and SimpleQueue have a lock for many
    writers; SimpleQueue's put() itself waits for room. Where one result comes back, an
    executor does all this.
Symptom: join() hangs with large results. Or recv() waits for a child that is dead;
    messages are mixed or garbled, with UnpicklingError; an item appended in a manager's
    dict is missing.
Look for: join() before get(); a Connection passed to several processes; d[key].append()
    on a manager's dict.
Sources: https://docs.python.org/3/library/multiprocessing.html#pipes-and-queues
    https://github.com/python/cpython/issues/73983
"""

import os
import signal
import time
from multiprocessing import get_context

from kit import broken, check, fixed, hangs, main, raises, returns

SPAWN = get_context("spawn")
LONG = 1_000_000


def answer(queue, length):
    queue.put("x" * length)


def start(target, *args):
    child = SPAWN.Process(target=target, args=args)
    child.start()
    return child


@broken(hangs(at="child.join()"))
def join_before_get(length=LONG):
    queue = SPAWN.Queue()
    child = start(answer, queue, length)
    child.join()  # for an exit that waits for a reader
    return len(queue.get())


@fixed(returns(LONG))
def get_before_join(length=LONG):
    queue = SPAWN.Queue()
    child = start(answer, queue, length)
    result = queue.get()
    child.join()
    return len(result)


@check(returns(100))
def short_message_hides_the_fault():
    return join_before_get(100)


@check(hangs(at="queue.put("))
def simple_queue_waits_for_room():
    queue = SPAWN.SimpleQueue()
    queue.put("x" * LONG)


def die(connection):
    os._exit(3)


@broken(hangs(at="reader.recv()"))
def keep_the_write_end():
    reader, writer = SPAWN.Pipe(duplex=False)
    start(die, writer)
    return reader.recv()


@fixed(returns(3))
def close_the_write_end():
    reader, writer = SPAWN.Pipe(duplex=False)
    child = start(die, writer)
    writer.close()  # now the child's is the only one
    try:
        return reader.recv()
    except EOFError:
        child.join()
        return child.exitcode


def send(connection, letter):
    connection.send_bytes(letter * 200_000)


def wait_until_message_is_begun(reader):
    import fcntl
    import struct
    import termios

    held = b"\0" * 4
    while struct.unpack("i", held)[0] < 8192:
        time.sleep(0)
        held = fcntl.ioctl(reader.fileno(), termios.FIONREAD, held)


@broken(returns([True, True]), linux="elsewhere nobody tells what a pipe holds")
def two_writers_on_one_pipe():
    reader, writer = SPAWN.Pipe(duplex=False)
    first = start(send, writer, b"a")
    wait_until_message_is_begun(reader)
    os.kill(first.pid, signal.SIGSTOP)  # in the middle of its message, as the scheduler does
    os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
    second = start(send, writer, b"b")
    message = reader.recv_bytes()
    for child in (first, second):
        child.kill()
        child.join()
    return [letter in message for letter in (b"a", b"b")]


def send_alone(lock, connection, letter):
    with lock:
        send(connection, letter)


@fixed(returns([1, 1]))
def writers_take_turns():
    reader, writer = SPAWN.Pipe(duplex=False)
    lock = SPAWN.Lock()
    children = [start(send_alone, lock, writer, letter) for letter in (b"a", b"b")]
    letters = [len(set(reader.recv_bytes())) for _ in children]
    for child in children:
        child.join()
    return letters


@broken(returns([]))
def change_a_managers_copy():
    with SPAWN.Manager() as manager:
        shared = manager.dict(done=[])
        shared["done"].append("task")
        return shared["done"]


@fixed(returns(["task"]))
def assign_to_the_manager():
    with SPAWN.Manager() as manager:
        shared = manager.dict(done=[])
        shared["done"] += ["task"]  # reads, changes and assigns; with several writers under a lock
        return shared["done"]


@check(returns(["task"]))
def nested_proxy_is_no_copy():
    with SPAWN.Manager() as manager:
        shared = manager.dict(done=manager.list())
        shared["done"].append("task")
        return list(shared["done"])


@check(returns([1, 2]), since=(3, 14), before=raises(AttributeError, "set"))
def managers_have_sets():
    with SPAWN.Manager() as manager:
        return sorted(manager.set([1, 2, 2]).copy())


if __name__ == "__main__":
    main()
