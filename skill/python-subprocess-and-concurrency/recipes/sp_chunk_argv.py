"""Pass many names in batches, by bytes, or on stdin; an argument list has a limit.

exec takes so many bytes, for the arguments and the environment together: on Linux a
quarter of the stack's limit, mostly 2 MiB, on macOS 1 MiB. Linux takes no string of
128 KiB, and a command for the shell is one string. Windows' limits, it is documented,
are 32,767 characters, and 8,191 in cmd.exe. What runs today fails with more files, with
longer paths, or in another environment.

Scope: batches are for what treats names one by one. To sort, count or pack all, give a
    list on stdin, as to `tar --null -T -`: xargs makes batches, too. Names may begin
    with a dash: `sp-end-options`.
Symptom: OSError: [Errno 7] Argument list too long. Where the environment is what has
    grown, a command with no arguments fails in the same way.
Look for: `[*command, *names]` or " ".join(names), where nothing bounds the names.
Sources: https://man7.org/linux/man-pages/man2/execve.2.html
    https://github.com/j178/prek/issues/1491
"""

import os
import sys
from itertools import chain
from subprocess import DEVNULL, check_output, run

from kit import broken, check, fixed, main, raises, returns

NAMES = [f"{number:050}" for number in range(150_000)]  # over 6 MiB
COUNT = ["sh", "-c", "echo $#", "sh"]
READ = "import sys; print(sys.stdin.read().count(chr(0)))"
TOO_LONG = "[Errno 7] Argument list too long: "
POSIX = "what Windows raises was not measured"
LINUX = "the bound on one string is Linux'"


@broken(raises(OSError, TOO_LONG + "'sh'"), posix=POSIX)
def all_at_once():
    return int(check_output([*COUNT, *NAMES], timeout=60))


def batches(names, most=100_000):
    batch, size = [], 0
    for name in names:
        more = len(os.fsencode(name)) + 9  # its end, and a pointer
        if batch and size + more > most:
            yield batch
            batch, size = [], 0
        batch.append(name)
        size += more
    if batch:
        yield batch


@fixed(returns(150_000), posix=POSIX)
def in_batches():
    options = {"stdin": DEVNULL, "timeout": 60}
    argvs = ([*COUNT, *batch] for batch in batches(NAMES))
    return sum(int(check_output(argv, **options)) for argv in argvs)


@broken(returns(False), posix=POSIX)
def one_count_by_xargs():
    names = "".join(f"{name}\0" for name in NAMES)
    argv = ["xargs", "-0", *COUNT]
    output = check_output(argv, input=names, text=True, timeout=60)
    return output.split() == ["150000"]  # it is one count per batch


@fixed(returns(True))
def one_count_of_a_list_on_stdin():
    names = "".join(f"{name}\0" for name in NAMES)
    argv = [sys.executable, "-c", READ]
    output = check_output(argv, input=names, text=True, timeout=60)
    return output.split() == ["150000"]


@broken(raises(OSError, TOO_LONG + "'/bin/sh'"), linux=LINUX)
def shell_takes_one_string():
    command = " ".join(["set --", *NAMES[:4000], "; echo $#"])  # 204 kB
    return int(check_output(command, shell=True, timeout=60))


@fixed(returns(4000), posix=POSIX)
def list_takes_as_much_and_more():
    return int(check_output([*COUNT, *NAMES[:4000]], timeout=60))


@check(raises(OSError, TOO_LONG + "'true'"), linux=LINUX)
def environment_counts():
    run(["true"], env={**os.environ, "LIST": "x" * 131_072}, timeout=60)


@check(returns((True, True, [])))
def batches_lose_nothing_and_keep_to_the_bound():
    found = list(batches(NAMES))
    largest = max(len("".join(batch)) + 9 * len(batch) for batch in found)
    return list(chain(*found)) == NAMES, largest <= 100_000, list(batches([]))


if __name__ == "__main__":
    main()
