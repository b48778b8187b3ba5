"""Pass check=True or read the status; let the error say what the child wrote to stderr.

run() returns after a failure as it does after success, and who does not look goes on. With
check=True it raises CalledProcessError, whose text is the command and the status only: what
`capture_output` took off the terminal stays in the attribute `stderr`, which no traceback
and no log shows. A subclass can show it, on every Python, and `except CalledProcessError`
still catches it. It decodes leniently, or else bytes that are not UTF-8 would replace the
failure with a UnicodeDecodeError.

Scope: a stderr that is not captured has been seen: check=True is enough. grep and diff
    answer with 1, so read `returncode` and raise above it. A program that cannot be started
    is an OSError. add_note(), new in 3.11, reaches tracebacks but not str(). A pipeline has
    the status of its last command (`sp-read-the-status`); with SIGCHLD ignored, all are 0
    (`sp-one-reaper`). The text shows the arguments: pass no secrets in them.
Symptom: Command '['cat', 'missing']' returned non-zero exit status 1. And not why. From
    3.15 on: Command ['cat', 'missing'] returned. Of a signal: died with <Signals.SIGKILL: 9>.
Look for: run() or call() whose result nobody reads; capture_output with check=True.
Sources: https://docs.python.org/3/library/subprocess.html#subprocess.CalledProcessError
    https://github.com/python/cpython/pull/130262
    https://github.com/python/cpython/issues/151485
"""

import subprocess
import traceback
from subprocess import DEVNULL, CalledProcessError

from kit import broken, check, fixed, main, prints, raises, returns

CAT = ["cat", "missing"]
WHY = "cat: missing: No such file or directory"
POSIX = "the programs that fail here are those of a POSIX system"


class CommandFailed(CalledProcessError):
    def __str__(self):
        said = (self.stderr or b"").decode("utf-8", "backslashreplace")
        return f"{super().__str__()}\n{said[-2000:]}".rstrip()


def output_of(argv):
    done = subprocess.run(argv, stdin=DEVNULL, capture_output=True, timeout=30)
    if done.returncode:
        raise CommandFailed(done.returncode, argv, done.stdout, done.stderr)
    return done.stdout


@broken(returns("deployed") & prints(WHY), posix=POSIX)
def go_on_regardless():
    subprocess.run(CAT, timeout=30)
    return "deployed"


@fixed(raises(CalledProcessError, "non-zero exit status 1.") & prints(WHY), posix=POSIX)
def stop_at_a_failure():
    subprocess.run(CAT, stdin=DEVNULL, timeout=30, check=True)
    return "deployed"


@broken(
    returns("Command '['cat', 'missing']' returned non-zero exit status 1.", until=(3, 14))
    | returns("Command ['cat', 'missing'] returned non-zero exit status 1.", since=(3, 15)),
    posix=POSIX,
)
def log_an_error_that_does_not_say_why():
    try:
        subprocess.run(CAT, capture_output=True, timeout=30, check=True)
    except CalledProcessError as error:
        return str(error)


@fixed(raises(CommandFailed, f"returned non-zero exit status 1.\n{WHY}"), posix=POSIX)
def raise_an_error_that_says_why():
    return output_of(CAT)


@check(raises(CommandFailed, "died with <Signals.SIGKILL: 9>.\nno text: \\xff"), posix=POSIX)
def killed_after_bytes_that_are_no_text():
    return output_of(["sh", "-c", r"printf 'no text: \377' >&2; kill -KILL $$"])


@check(raises(FileNotFoundError, "No such file or directory: 'no-such-program'"), posix=POSIX)
def what_cannot_be_started():
    return output_of(["no-such-program"])


@check(returns((1, True)), posix=POSIX)
def grep_answers_with_1_and_fails_above():
    no, failed = (subprocess.run(["grep", "x", file]) for file in ("/dev/null", "missing"))
    return no.returncode, failed.returncode > 1


@check(returns((True, False)), since=(3, 11), before=raises(AttributeError, "'add_note'"), posix=POSIX)
def a_note_is_in_the_traceback_only():
    try:
        subprocess.run(CAT, capture_output=True, check=True)
    except CalledProcessError as error:
        error.add_note(WHY)
        return WHY in "".join(traceback.format_exception(error)), WHY in str(error)


if __name__ == "__main__":
    main()
