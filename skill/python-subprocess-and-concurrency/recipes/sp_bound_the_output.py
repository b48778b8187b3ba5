"""Cut a child's output while it comes, or send it to a file; captured, it has no bound.

capture_output, check_output() and communicate() hold in memory all that a child writes,
at the end twice: in parts, and joined. A loop in it, or a 2 GB log, ends our program.
A timeout is too late, as is cutting afterwards: a pipe carries gigabytes in seconds.

Scope: not for a child known to write little. The disk alone bounds a file, and /tmp can
    be memory. For what it started: `sp-kill-the-process-tree`.
Symptom: MemoryError in communicate(). Or the program is killed (status 137). It happens
    with one input, or after days.
Look for: capture_output, check_output(), `for line in child.stdout`, with no limit.
Sources: https://docs.python.org/3/library/subprocess.html#subprocess.Popen.communicate
    https://github.com/gptme/gptme/issues/3798
"""

import os
from subprocess import DEVNULL, PIPE, STDOUT, CompletedProcess, Popen, TimeoutExpired, check_output, run
from tempfile import TemporaryFile

from kit import broken, check, fixed, main, raises, returns

HUGE = ["head", "-c", "100000000", "/dev/zero"]
LINUX = "elsewhere RLIMIT_AS may bound nothing"
POSIX = "head is a program of POSIX"


def cap_memory(size):
    from resource import RLIMIT_AS, setrlimit

    setrlimit(RLIMIT_AS, (size, size))


@broken(raises(MemoryError, ""), linux=LINUX)
def cut_too_late():
    cap_memory(180_000_000)
    return run(HUGE, capture_output=True, timeout=60).stdout[:1000]


def run_limited(argv, limit=1_000_000, timeout=60):
    cut = ["head", "-c", str(limit + 1)]
    with Popen(argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT) as child:
        try:
            output = check_output(cut, stdin=child.stdout, timeout=timeout)
            if len(output) > limit:
                raise ValueError(f"over {limit} bytes from {argv}")
            return CompletedProcess(argv, child.wait(timeout), output)
        finally:
            child.kill()


@fixed(raises(ValueError, "over 1000000 bytes from ['cat'"), posix=POSIX)
def cut_while_it_comes():
    run_limited(["cat", "/dev/zero"])


@broken(raises(MemoryError, ""), linux=LINUX)
def read_by_the_line():
    cap_memory(180_000_000)
    with Popen(HUGE, stdout=PIPE) as child:
        return max(len(line) for line in child.stdout)  # it is one line


@fixed(returns((100_000_000, 1000)), linux=LINUX)
def send_it_to_a_file():
    cap_memory(90_000_000)
    with TemporaryFile() as file:
        run(HUGE, stdin=DEVNULL, stdout=file, timeout=60, check=True)
        size = os.fstat(file.fileno()).st_size
        file.seek(-1000, os.SEEK_END)
        return size, len(file.read())


@check(returns((3, b"12")), posix=POSIX)
def below_the_limit_all_is_told():
    done = run_limited(["sh", "-c", "printf 1; printf 2 >&2; exit 3"], limit=2)
    return done.returncode, done.stdout


@check(raises(ValueError, "over 4 bytes from"), posix=POSIX)
def child_is_ended_when_it_writes_more():
    run_limited(["sh", "-c", "printf 12345; exec sleep infinity"], limit=4)


@check(raises(TimeoutExpired, "timed out after 0.1 seconds"), posix=POSIX)
def time_is_bounded_too():
    run_limited(["sleep", "infinity"], timeout=0.1)


if __name__ == "__main__":
    main()
