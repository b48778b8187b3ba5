"""Call subprocess.run with argv, not os.system, os.popen, os.spawn* or getstatusoutput.

Each of the four hides a failure. os.system() returns a wait status, the exit status
times 256: as an exit status of your own, 256 is 0. os.popen() gives what came before
the failure, and only close() tells. os.spawn*() makes 127 of a missing program.
getstatusoutput() mixes errors into the output. Three go through a shell, none takes a
timeout, and while os.system() waits, Ctrl-C does not stop the program. run() raises
what went wrong.

Scope: os.waitstatus_to_exitcode() reads a wait status, but not the -2304 that close()
    returns after SIGKILL. The documentation calls os.popen and os.spawn* soft
    deprecated; no version warns. On Windows, it says, the values are exit codes. What
    starts others needs more than a timeout: `sp-timeout-always`.
Symptom: a failed build passes; a status of 256, 768 or 32512; half an output, and no
    error.
Look for: os.system, sys.exit(os.system()), os.popen, os.spawn, getoutput,
    getstatusoutput.
Sources: https://docs.python.org/3/library/os.html#os.system
    https://docs.python.org/3/library/subprocess.html#subprocess-replacements
    https://github.com/tensorflow/tensorflow/pull/38955
"""

import os
import shlex
import subprocess
import sys
import warnings
from inspect import signature

from kit import broken, check, exits, fixed, main, raises, returns

POSIX = "Windows has no wait status"
MISSING = "no-such-program"
PARTIAL = [sys.executable, "-c", "print('some'); raise SystemExit(3)"]
NOISY = [sys.executable, "-c", "import os; os.write(2, b'hm\\n'); print('all')"]


def run(argv):
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=60,
        check=True,
    )


@broken(exits(0), posix=POSIX)
def exit_with_a_wait_status():
    sys.exit(os.system("false"))


@fixed(raises(subprocess.CalledProcessError, "returned non-zero exit status 1"), posix=POSIX)
def raise_the_failure():
    run(["false"])


@broken(returns("some\n"), posix=POSIX)
def read_from_popen():
    return os.popen(shlex.join(PARTIAL)).read()


@fixed(raises(subprocess.CalledProcessError, "returned non-zero exit status 3"))
def read_all_or_raise():
    return run(PARTIAL).stdout


@broken(returns(127), posix=POSIX)
def spawn_a_missing_program():
    return os.spawnvp(os.P_WAIT, MISSING, [MISSING])


@fixed(raises(FileNotFoundError, MISSING), posix="Windows names no file in the message")
def raise_that_it_is_missing():
    return run([MISSING]).returncode


@broken(returns("hm\nall"), posix=POSIX)
def mix_output_and_errors():
    return subprocess.getstatusoutput(shlex.join(NOISY))[1]


@fixed(returns(("all\n", "hm\n")))
def keep_output_and_errors_apart():
    done = run(NOISY)
    return done.stdout, done.stderr


@check(returns(([(0, None, 0), (768, 768, 3), (32512, 32512, 127), (9, -2304, -9)], 247)), posix=POSIX)
def system_and_close_return_wait_statuses():
    commands = "exit 0", "exit 3", MISSING, "kill -9 $$"
    pairs = [(os.system(each), os.popen(each).close()) for each in commands]
    read = os.waitstatus_to_exitcode
    return [(*pair, read(pair[0])) for pair in pairs], read(pairs[3][1])


@check(returns(0), posix="kill is a program of POSIX")
def system_ignores_interrupts():
    return os.system("kill -INT $PPID")  # its parent is this program


@check(returns([]))
def none_takes_a_timeout():
    four = os.system, os.popen, os.spawnv, subprocess.getstatusoutput
    return [each for each in four if "timeout" in signature(each).parameters]


@check(returns([]), posix=POSIX)
def no_version_warns():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        os.system("true")
        os.popen("true").close()
        subprocess.getoutput("true")
        os.spawnvp(os.P_WAIT, "true", ["true"])
    return [str(warning.message) for warning in seen]


if __name__ == "__main__":
    main()
