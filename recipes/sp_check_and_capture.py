"""Pass check=True or read the status; let the error say what the child wrote to stderr.

run() returns after a failure as after success. check=True raises, but the error's text
is only the command and the status: the captured stderr stays in an attribute, which no
traceback or log shows. A subclass shows it. Decode leniently, or bytes that are no text
raise something else.

Scope: without capture, check=True is enough. grep and diff answer with 1: raise above.
    add_note() (3.11) reaches tracebacks, not str(). A pipeline's status is its last
    command's (`sp-read-the-status`); with SIGCHLD ignored, all are 0 (`sp-one-reaper`).
    The text shows the arguments: no secrets.
Symptom: returned non-zero exit status 1, and not why. In full: Command '['cat',
    'missing']' returned non-zero exit status 1. From 3.15 on: Command ['cat',
    'missing'] returned. Of a signal: died with <Signals.SIGKILL: 9>.
Look for: run() or call() whose result nobody reads; capture_output with check=True.
Sources: https://docs.python.org/3/library/subprocess.html#subprocess.CalledProcessError
    https://github.com/validatedpatterns/multicloud-gitops/issues/517
"""

import traceback
from subprocess import DEVNULL, CalledProcessError, run

from kit import broken, check, fixed, main, prints, raises, returns

CAT = ["cat", "missing"]
WHY = "cat: missing: No such file or directory"
POSIX = "the programs that fail here are those of a POSIX system"


class CommandFailed(CalledProcessError):
    def __str__(self):
        return f"{super().__str__()}\n{(self.stderr or self.stdout)[-2000:]}".rstrip()


def output_of(argv, timeout=30):
    done = run(
        argv,
        stdin=DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=timeout,
    )
    if done.returncode:
        raise CommandFailed(done.returncode, argv, done.stdout, done.stderr)
    return done.stdout


@broken(returns("deployed"), posix=POSIX)
def go_on_in_silence():
    run(CAT, capture_output=True, timeout=30)
    return "deployed"


@fixed(raises(CommandFailed, "returned non-zero exit status 1.\ncat: missing: No such file or directory"), posix=POSIX)
def stop_and_say_why():
    return output_of(CAT)


@broken(returns("deployed") & prints(WHY), posix=POSIX)
def go_on_after_a_message():
    run(CAT, timeout=30)
    return "deployed"


@fixed(raises(CalledProcessError, "non-zero exit status 1.") & prints(WHY), posix=POSIX)
def stop_after_a_message():
    run(CAT, stdin=DEVNULL, timeout=30, check=True)
    return "deployed"


@check(
    returns("Command '['cat', 'missing']' returned non-zero exit status 1.", until=(3, 14))
    | returns("Command ['cat', 'missing'] returned non-zero exit status 1.", since=(3, 15)),
    posix=POSIX,
)
def the_text_does_not_say_why():
    try:
        run(CAT, capture_output=True, timeout=30, check=True)
    except CalledProcessError as error:
        return str(error)


@check(raises(CommandFailed, "died with <Signals.SIGKILL: 9>.\nno text: \\xff"), posix=POSIX)
def killed_after_bytes_that_are_no_text():
    return output_of(["sh", "-c", r"printf 'no text: \377' >&2; kill -KILL $$"])


@check(raises(FileNotFoundError, "No such file or directory: 'no-such-program'"), posix=POSIX)
def what_cannot_be_started():
    return output_of(["no-such-program"])  # an OSError, whatever check= is


@check(returns((1, True)), posix=POSIX)
def grep_answers_with_1_and_fails_above():
    no, failed = (run(["grep", "x", file]) for file in ("/dev/null", "gone"))
    return no.returncode, failed.returncode > 1


@check(returns((True, False)), since=(3, 11), before=raises(AttributeError, "'add_note'"), posix=POSIX)
def a_note_is_in_the_traceback_only():
    try:
        run(CAT, capture_output=True, check=True)
    except CalledProcessError as error:
        error.add_note(WHY)
        shown = "".join(traceback.format_exception(error))
        return WHY in shown, WHY in str(error)


if __name__ == "__main__":
    main()
