"""Give a child stdin=DEVNULL or input=; never let it read your own standard input.

A child inherits standard input unless told otherwise, under `capture_output=True`, too.
It reads what was meant for its parent, or asks something and waits for an answer, with
the question itself captured. At DEVNULL it meets the end of input and fails at once.
Password prompts open /dev/tty, the session's terminal, whatever stdin is; a new session
has none. A tool may then ask in a window: use its switch, too, `GIT_TERMINAL_PROMPT=0`
for git, and `-o BatchMode=yes` for ssh, which ignores git's.

Scope: not for what the user is to talk to: an editor, a pager, sudo. Ctrl-C does not
    reach a new session: run() then kills its child, but not what that has started
    (`sp-kill-the-process-tree`).
Symptom: a command hangs in silence, waiting for an answer. A loop over `sys.stdin` ends
    early. Once cured: EOFError: EOF when reading a line.
Look for: run(), check_output() or Popen() with neither stdin= nor input=.
Sources: https://docs.python.org/3/library/subprocess.html#popen-constructor
    https://github.com/MoonshotAI/kimi-cli/issues/2037
    https://github.com/vcs-python/vcspull/issues/574
"""

import contextlib
import os
import subprocess
import sys

from kit import broken, check, fixed, hangs, main, returns

ASKS = [sys.executable, "-c", "input('Continue? ')"]
ASKS_TERMINAL = [sys.executable, "-c", "print(open('/dev/tty').readline())"]
READS = [sys.executable, "-c", "import sys; print(sys.stdin.read(), end='')"]
POSIX = "which standard input a child gets on Windows was not measured"


@broken(hangs(at="subprocess.run("), posix=POSIX)
def wait_for_an_answer():
    os.dup2(os.pipe()[0], 0)  # like a terminal where nobody types
    subprocess.run(ASKS, capture_output=True)


def run_unattended(argv):
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # has no /dev/tty
        capture_output=True,
        timeout=30,
    )


@fixed(returns((1, b"EOFError: EOF when reading a line")))
def meet_the_end_of_input():
    os.dup2(os.pipe()[0], 0)
    done = run_unattended(ASKS)
    return done.returncode, done.stderr.splitlines()[-1]


def have_a_terminal():
    """Gives our session a terminal where nobody types, unless it has one."""
    import fcntl  # POSIX only
    import termios

    _, terminal = os.openpty()
    with contextlib.suppress(PermissionError):  # run by hand, it may have one
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


@broken(hangs(at="subprocess.run("), posix="there is no /dev/tty elsewhere")
def devnull_leaves_the_terminal():
    have_a_terminal()
    subprocess.run(ASKS_TERMINAL, stdin=subprocess.DEVNULL, capture_output=True)


@fixed(returns((1, b"OSError: [Errno 6] No such device or address: '/dev/tty'")), linux="the message is that of Linux")
def new_session_has_no_terminal():
    have_a_terminal()
    done = run_unattended(ASKS_TERMINAL)
    return done.returncode, done.stderr.splitlines()[-1]


def put_on_stdin(text):
    reader, writer = os.pipe()
    os.write(writer, text)
    os.close(writer)
    os.dup2(reader, 0)


@broken(returns(""), posix=POSIX)
def child_takes_our_input():
    put_on_stdin(b"one\ntwo\n")
    subprocess.check_output(READS, timeout=30)
    return sys.stdin.read()


@fixed(returns((b"", b"its own", "one\ntwo\n")))
def child_gets_no_input_or_its_own():
    put_on_stdin(b"one\ntwo\n")
    nothing = run_unattended(READS).stdout
    given = subprocess.check_output(READS, input=b"its own", timeout=30)
    return nothing, given, sys.stdin.read()


@check(returns(("one\n", b"", "two\n")), posix=POSIX)
def reading_ahead_hides_the_fault():
    put_on_stdin(b"one\ntwo\n")
    line = sys.stdin.readline()  # takes both lines: it reads by the chunk
    return line, subprocess.check_output(READS, timeout=30), sys.stdin.read()


if __name__ == "__main__":
    main()
