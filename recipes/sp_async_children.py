"""Start children with create_subprocess_exec; on every way out, kill their group and reap.

subprocess.run() in a coroutine stops the event loop: no other task, deadline or
cancellation has its turn before the child ends. create_subprocess_exec() lets them, but a
deadline or a cancellation ends only the waiting, and the child lives on. To kill the child
alone is not enough: what it started holds its pipes, and communicate() waits for their end.
So it gets a session of its own, whose group is killed in `finally`, then drained and
reaped: with a bound, since a descendant that left the session may still hold a pipe.

Scope: rely neither on wait() after kill() nor on the program's end to be rid of a child:
    both differ between patch releases. A child whose creation is cancelled is killed by
    asyncio, without its group. POSIX, for killpg(). SIGKILL leaves no time to clean up:
    for that, see `sp-kill-the-process-tree`.
Symptom: a server stands still while a child runs; children live on after a timeout. Or:
    ValueError: Separator is not found, and chunk exceed the limit (a line over 64 KiB).
Look for: subprocess.run() in `async def`; wait_for() or kill(), but no killpg() in finally.
Sources: https://docs.python.org/3/library/asyncio-subprocess.html
    https://github.com/python/cpython/issues/119710
    https://github.com/python/cpython/issues/103847
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from subprocess import DEVNULL, PIPE, CalledProcessError

from kit import broken, check, fixed, hangs, leaves, main, prints, raises, returns

TREE = ["sh", "-c", "sleep infinity & echo started; wait"]
ESCAPED = "setsid sh -c 'echo started; exec sleep infinity' & wait"
CHATTY = [sys.executable, "-c", "print('x' * 1_000_000, end='')"]
POSIX = "process groups"


def in_loop(half):
    return lambda: asyncio.run(half())


@broken(returns(b"alive"), posix=POSIX)
@in_loop
async def only_stop_waiting():
    source, feed = os.pipe()
    pipes = {"stdin": source, "stdout": PIPE}
    child = await asyncio.create_subprocess_exec("cat", **pipes)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(child.communicate(), 0.2)
    os.write(feed, b"alive")
    return await child.stdout.read(5)  # it still answers


@broken(hangs(at="asyncio.run(half())") & prints("killed"), posix=POSIX)
@in_loop
async def kill_the_child_alone():
    child = await asyncio.create_subprocess_exec(*TREE, stdout=PIPE)
    await child.stdout.readline()
    child.kill()
    print("killed", flush=True)
    return await child.communicate()  # `sleep` holds the pipe


@contextlib.asynccontextmanager
async def running(*argv, **options):
    options.update(stdin=DEVNULL, start_new_session=True)
    child = await asyncio.create_subprocess_exec(*argv, **options)
    try:
        yield child  # asyncio reaps it at its end: leave the block soon after
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(child.communicate(), 1)  # drain and reap


async def run_child(*argv, timeout):
    async with running(*argv, stdout=PIPE, stderr=PIPE) as child:
        output, errors = await asyncio.wait_for(child.communicate(), timeout)
    if child.returncode:
        raise CalledProcessError(child.returncode, argv, output, errors)
    return output


@fixed(raises(asyncio.TimeoutError, ""), posix=POSIX)
@in_loop
async def end_the_group():
    return await run_child(*TREE, timeout=0.2)


@broken(returns(0), posix=POSIX)
@in_loop
async def block_the_loop():
    ticks = []
    asyncio.get_running_loop().call_soon(ticks.append, "tick")
    subprocess.run(["true"], check=True, timeout=60)
    return len(ticks)


@broken(hangs(at="asyncio.run(half())"))
@in_loop
async def wait_on_a_full_pipe():
    child = await asyncio.create_subprocess_exec(*CHATTY, stdout=PIPE)
    return await child.wait()


@fixed(returns((1, 1_000_000)), posix=POSIX)
@in_loop
async def serve_the_loop_and_the_pipe():
    ticks = []
    asyncio.get_running_loop().call_soon(ticks.append, "tick")
    output = await run_child(*CHATTY, timeout=60)
    return len(ticks), len(output)


@check(returns(b"started\n") & leaves(1), linux="setsid is a program of Linux")
@in_loop
async def an_escaped_descendant_cannot_hold_it_up():
    async with running("sh", "-c", ESCAPED, stdout=PIPE) as child:
        return await child.stdout.readline()


@check(raises(ValueError, "Separator is not found, and chunk exceed the limit"), posix=POSIX)
@in_loop
async def a_line_has_a_limit():
    async with running(*CHATTY, stdout=PIPE) as child:  # limit=2**20 would do
        return await child.stdout.readline()


@check(raises(ValueError, "text must be False"))
@in_loop
async def pipes_carry_bytes():
    return await asyncio.create_subprocess_exec("true", text=True)


if __name__ == "__main__":
    main()
