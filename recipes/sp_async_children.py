"""Start children with create_subprocess_exec; on every way out, kill their group and reap.

subprocess.run() stops the event loop until the child ends. create_subprocess_exec()
does not, but a deadline or cancellation ends only the waiting, and kill() only the
child: what that started holds the pipes, for whose end communicate() waits, and in some
releases wait(). So kill the group, then drain and reap, with a bound: who left the group
may hold a pipe.

Scope: cancelled while it is created, a child is killed by asyncio, without its group.
    For an orderly end: `sp-kill-the-process-tree`.
Symptom: a server stands still while a child runs; children live on after a timeout;
    what wait() does after kill(), and asyncio at exit, differs between patch releases.
    Or: ValueError: Separator is not found, and chunk exceed the limit (over 64 KiB).
Look for: subprocess.run() in `async def`; wait_for() or kill() without killpg().
Sources: https://docs.python.org/3/library/asyncio-subprocess.html
    https://github.com/python/cpython/issues/119710
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, run

from kit import broken, check, fixed, hangs, leaves, main, prints, raises, returns

TREE = ["sh", "-c", "sleep infinity & echo up; wait"]
ESCAPING = "sleep infinity & setsid sh -c '>up; exec sleep infinity' & wait"
CHATTY = [sys.executable, "-c", "print('x' * 1_000_000, end='')"]
POSIX = "process groups"


async def sleep_in_the_loop():
    run(["sleep", "infinity"])


@broken(hangs(at='run(["sleep", "infinity"])'), posix=POSIX)
def deadline_without_a_turn():
    asyncio.run(asyncio.wait_for(sleep_in_the_loop(), 0.2))


async def run_child(*argv, timeout):
    options = {"stdin": DEVNULL, "stdout": PIPE, "start_new_session": True}
    child = await asyncio.create_subprocess_exec(*argv, **options)
    try:
        output, _ = await asyncio.wait_for(child.communicate(), timeout)
        return child.returncode, output
    finally:
        with suppress(ProcessLookupError, asyncio.TimeoutError):
            os.killpg(child.pid, signal.SIGKILL)
            await asyncio.wait_for(child.communicate(), 1)  # drain and reap


@fixed(raises(asyncio.TimeoutError, ""), posix=POSIX)
def end_the_child():
    return asyncio.run(run_child("sleep", "infinity", timeout=0.2))


def in_loop(half):
    return lambda: asyncio.run(half())


@broken(returns(-15), posix=POSIX)
@in_loop
async def only_stop_waiting():
    child = await asyncio.create_subprocess_exec("sleep", "infinity")
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(child.wait(), 0.2)
    child.terminate()
    return await child.wait()  # it lived until now


@fixed(raises(asyncio.CancelledError, "") & leaves(1), linux="setsid is a program of Linux")
@in_loop
async def cancel_in_spite_of_an_escaped_descendant():
    create, created = asyncio.create_subprocess_exec, asyncio.Event()

    async def create_and_tell(*argv, **options):
        child = await create(*argv, **options)
        created.set()  # run_child goes on before anybody else has a turn
        return child

    asyncio.create_subprocess_exec = create_and_tell
    os.mkfifo("up")
    task = asyncio.create_task(run_child("sh", "-c", ESCAPING, timeout=60))
    await asyncio.to_thread(Path("up").read_bytes)  # it has left the group
    os.remove("up")
    await created.wait()
    task.cancel()
    await task


@broken(hangs(at="asyncio.run(half())") & prints("killed"), posix=POSIX)
@in_loop
async def kill_the_child_alone():
    child = await asyncio.create_subprocess_exec(*TREE, stdout=PIPE)
    await child.stdout.readline()
    child.kill()
    print("killed", flush=True)
    return await child.communicate()  # `sleep` holds the pipe


@check(returns((0, 1_000_000)), posix=POSIX)
def in_time_it_returns_status_and_output():
    status, output = asyncio.run(run_child(*CHATTY, timeout=60))
    return status, len(output)


@check(raises(ValueError, "Separator is not found, and chunk exceed the limit"), posix=POSIX)
@in_loop
async def a_line_has_a_limit():
    child = await asyncio.create_subprocess_exec(*CHATTY, stdout=PIPE)
    try:
        return await child.stdout.readline()  # limit=2**20 would do
    finally:
        await child.communicate()


if __name__ == "__main__":
    main()
