"""Let one process own and unlink shared memory; others attach with track=False.

Who attaches also tells its program's resource tracker, which unlinks the block when
that ends: none can attach again. track=False (3.13) tells nobody; before, hold
register() back.

Scope: children of multiprocessing share the owner's tracker, unless forked before it
    ran, and may attach as they are; unregister() takes the owner's entry. If the owner
    is killed, only a tracked block goes. POSIX only.
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
GONE = "No such file or directory: '/psm_"

HERE, ME = os.path.split(__file__[:-3])


def read_by(how):
    block = SharedMemory(create=True, size=1)
    code = f"from {ME} import *; {how}('{block.name}')"
    try:
        run([sys.executable, "-Bc", code], cwd=HERE, stderr=PIPE, check=True)
    finally:
        block.close()
        block.unlink()


@broken(raises(FileNotFoundError, GONE), posix=POSIX)
def reader_takes_it_away():
    read_by("SharedMemory")


OTHERS = set()


def register(name, kind, tell=resource_tracker.register):
    return name in OTHERS or tell(name, kind)


def attach(name):
    if sys.version_info >= (3, 13):
        return SharedMemory(name, track=False)
    OTHERS.add("/" + name)
    resource_tracker.register = register
    return SharedMemory(name)


@fixed(returns(None))
def reader_only_reads():
    read_by("attach")


def own_while(use, *args):
    block = SharedMemory(create=True, size=1)
    try:
        return use(block.name, *args)
    finally:
        block.close()
        block.unlink()


def write_seven(name, attach):
    block = attach(name)
    block.buf[0] = 7
    block.close()


def child(name, function, *args):
    process = get_context("spawn").Process(target=function, args=(name, *args))
    process.start()
    process.join()
    return process.exitcode


@check(returns(0))
def spawned_child_attaches():
    return own_while(child, write_seven, SharedMemory)


def write_seven_and_unregister(name):
    write_seven(name, SharedMemory)
    resource_tracker.unregister("/" + name, "shared_memory")


@check(returns(0) & prints("KeyError: '/psm_"), posix=POSIX)
def unregister_takes_the_entry_of_the_owner():
    return own_while(child, write_seven_and_unregister)


def write_when_told(names, stderr, attach):
    os.dup2(stderr, 2)  # which its tracker holds, too
    write_seven(os.read(names, 100).decode(), attach)


def own_and_fork_before(attach):
    (names, tell), (errors, stderr) = os.pipe(), os.pipe()
    process = get_context("fork").Process(target=write_when_told, args=(names, stderr, attach))
    process.start()
    os.close(stderr)

    def use(name):
        os.write(tell, name.encode())
        process.join()
        with open(errors, "rb") as file:
            return file.read()  # to the end of its tracker

    return own_while(use)


@check(raises(FileNotFoundError, GONE), posix=POSIX)
def child_forked_before_the_tracker_ran():
    own_and_fork_before(SharedMemory)


@check(returns(b""), posix=POSIX)
def such_a_child_only_reads():
    return own_and_fork_before(attach)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def use_attach_at_home_and_die(name):
    block = attach(name)
    if (child(name, write_seven, attach), block.buf[0]) == (0, 7):
        die()


@check(dies("SIGKILL") & prints("leaked shared_memory objects to clean up"), posix=POSIX)
def tracked_block_goes_with_its_owner_whoever_attached():
    own_while(use_attach_at_home_and_die)


@check(dies("SIGKILL") & leaves(segments=1), since=(3, 13), before=raises(TypeError, "argument 'track'"), posix=POSIX)
def untracked_block_stays():
    SharedMemory(create=True, size=1, track=False)
    die()


@check(returns(None) & prints("There appear to be 1 leaked shared_memory objects"), posix=POSIX)
def owner_that_does_not_unlink():
    SharedMemory(create=True, size=1).close()


if __name__ == "__main__":
    main()
