"""Let one process own and unlink shared memory; others attach with track=False.

On POSIX whoever creates a block or attaches to it tells its resource tracker. That of
another program unlinks the block when the program ends: nobody can attach any more.
track=False (3.13) does not tell it; before, take it back.

Scope: children of multiprocessing share the owner's tracker and attach as they are, if
    it ran before they were forked. When its owner is killed, a tracked block goes, an
    untracked one stays. POSIX only.
Symptom: a block is gone after a reader's exit. FileNotFoundError: [Errno 2] No such file
    or directory: '/psm_...'. Or on stderr: There appear to be 1 leaked shared_memory
    objects to clean up at shutdown. Or KeyError in resource_tracker.
Look for: SharedMemory(name) without track=; unlink() in more than one process.
Sources: https://docs.python.org/3/library/multiprocessing.shared_memory.html
    https://github.com/python/cpython/issues/82300
"""

import os
import signal
import sys
from multiprocessing import get_context, resource_tracker
from multiprocessing.shared_memory import SharedMemory
from subprocess import PIPE, run

from kit import broken, check, dies, fixed, leaves, main, prints, raises, returns

POSIX = "Windows has no trackers"
GONE = "[Errno 2] No such file or directory: '/psm_"

HERE, RECIPE = os.path.split(__file__[: -len(".py")])


def own_while(use, *args):
    block = SharedMemory(create=True, size=1)
    try:
        return use(block.name, *args)
    finally:
        block.close()
        block.unlink()


def elsewhere(name, attach):
    code = f"import {RECIPE} as r; r.{attach}('{name}').close()"
    run([sys.executable, "-Bc", code], cwd=HERE, stderr=PIPE, check=True)


@broken(raises(FileNotFoundError, GONE), posix=POSIX)
def reader_takes_it_away():
    own_while(elsewhere, "SharedMemory")


def attach(name):
    if sys.version_info >= (3, 13):
        return SharedMemory(name, track=False)
    block = SharedMemory(name)
    resource_tracker.unregister("/" + name, "shared_memory")
    return block


@fixed(returns(None))
def reader_only_reads():
    own_while(elsewhere, "attach")


def read_here(name):
    block = SharedMemory(name)
    block.buf[0] = 7
    block.close()


def child(name, method, function):
    started = get_context(method).Process(target=function, args=(name,))
    started.start()
    started.join()
    return started.exitcode


@check(returns(0))
def spawned_child_attaches():
    return own_while(child, "spawn", read_here)


def read_here_and_take_back(name):
    read_here(name)
    resource_tracker.unregister("/" + name, "shared_memory")


@check(returns(0) & prints("KeyError: '/psm_"), posix=POSIX)
def child_takes_back_the_owner_s():
    return own_while(child, "spawn", read_here_and_take_back)


def read_when_told(names, stderr):
    os.dup2(stderr, 2)  # which its tracker holds, too
    read_here(os.read(names, 100).decode())


@check(raises(FileNotFoundError, GONE), posix=POSIX)
def forked_before_the_tracker_ran():
    (names, tell), (ended, stderr) = os.pipe(), os.pipe()
    reader = get_context("fork").Process(target=read_when_told, args=(names, stderr))
    reader.start()
    os.close(stderr)

    def read_in_the_child(name):
        os.write(tell, name.encode())
        reader.join()
        while os.read(ended, 100):
            pass

    own_while(read_in_the_child)


def die(name):
    os.kill(os.getpid(), signal.SIGKILL)


@check(dies("SIGKILL") & prints("leaked shared_memory objects to clean up"), posix=POSIX)
def tracked_block_goes_when_its_owner_is_killed():
    own_while(die)


@check(returns(None) & leaves(segments=1), since=(3, 13), before=raises(TypeError, "argument 'track'"), posix=POSIX)
def untracked_block_stays():
    SharedMemory(create=True, size=1, track=False).close()


@check(returns(None) & prints("There appear to be 1 leaked shared_memory objects"), posix=POSIX)
def owner_that_does_not_unlink():
    SharedMemory(create=True, size=1).close()


if __name__ == "__main__":
    main()
