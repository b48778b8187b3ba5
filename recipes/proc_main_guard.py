"""Start processes below `if __name__ == "__main__":`; children import your main module.

Under spawn and forkserver a child is a new interpreter, which imports the main module
to find your functions in it. Code at its top level runs again there: it would start
children of its own, so multiprocessing refuses and the child dies. How the parent takes
that depends on the API: Process has an exitcode that nobody reads, an executor raises
BrokenProcessPool, and a Pool replaces its dead workers for ever. A frozen program's
children run main() again, without end: there freeze_support() is the first call below
the guard. Off Windows the freezer must support that, too.

Scope: not needed under fork, which was Linux' default up to 3.13; from 3.14 on the
    program that worked there fails. Not needed where nothing starts processes.
Symptom: "An attempt has been made to start a new process". Then: before the current
    process has finished its bootstrapping phase. A RuntimeError, in the child, once or
    without end. On 3.14: a program fails that worked before.
Look for: Process, Pool or ProcessPoolExecutor at the top level of a module.
Sources: https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods
    https://github.com/marcelotduarte/cx_Freeze/issues/588
"""

from concurrent.futures.process import BrokenProcessPool

from kit import broken, check, exits, fixed, main, prints, program, raises, spins

REFUSED = "An attempt has been made to start a new process before the"

UNGUARDED_PROCESS = """\
from multiprocessing import get_context

child = get_context("spawn").Process(target=print, args=("work",))
child.start()
child.join()  # returns; child.exitcode is 1
"""

UNGUARDED_EXECUTOR = """\
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
    print(pool.submit(abs, -1).result())
"""

UNGUARDED_POOL = """\
from multiprocessing import get_context

with get_context("spawn").Pool(2) as pool:
    print(pool.map(abs, [-1, -2]))  # workers die and are replaced
"""

GUARDED_PROCESS = """\
from multiprocessing import freeze_support, get_context


def main():
    child = get_context("spawn").Process(target=print, args=("work",))
    child.start()
    child.join()
    print(child.exitcode)


if __name__ == "__main__":
    freeze_support()  # does nothing, unless the program is frozen
    main()
"""

GUARDED_POOLS = """\
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def main():
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        print(pool.submit(abs, -1).result())
    with context.Pool(2) as pool:
        print(pool.map(abs, [-1, -2]))


if __name__ == "__main__":
    main()
"""

UNGUARDED_DEFAULT = """\
from concurrent.futures import ProcessPoolExecutor

with ProcessPoolExecutor(1) as pool:
    print("got", pool.submit(abs, -1).result())
"""

unguarded_process = broken(exits(0) & prints(REFUSED))(program(UNGUARDED_PROCESS))

guarded_process = fixed(exits(0) & prints("work\n0\n"))(program(GUARDED_PROCESS))

unguarded_executor = broken(
    raises(BrokenProcessPool, "A process in the process pool was terminated abruptly") & prints(REFUSED)
)(program(UNGUARDED_EXECUTOR))

unguarded_pool = broken(spins(REFUSED, times=3, at="pool.map("))(program(UNGUARDED_POOL))

guarded_pools = fixed(exits(0) & prints("1\n[1, 2]\n"))(program(GUARDED_POOLS))

unguarded_default = check(
    exits(0, until=(3, 13)) & prints("got 1") | exits(1, since=(3, 14)) & prints(REFUSED),
    linux="other systems had spawn as their default before 3.14, too",
)(program(UNGUARDED_DEFAULT))

if __name__ == "__main__":
    main()
