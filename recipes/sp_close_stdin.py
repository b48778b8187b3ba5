"""Give a child stdin=DEVNULL or input=; never let it read your own standard input.

A child inherits standard input unless it is told otherwise, under `capture_output=True`,
too. It reads what was meant for its parent, or asks something and waits for an answer,
with the question itself captured. At DEVNULL it meets the end of input and fails at once.
Password prompts open /dev/tty instead, the terminal of the session, whatever stdin is. In
a new session there is none. A tool may then ask in a window, so use its own switch, too:
`GIT_TERMINAL_PROMPT=0` for git, and `-o BatchMode=yes` for ssh, which ignores git's.

Scope: not for what the user is to talk to: an editor, a pager, sudo. In a new session
    Ctrl-C no longer reaches the child, so whoever starts it must also end it.
Symptom: a loop over `sys.stdin` ends early. A command hangs in silence, or takes what is
    typed for another one. Once cured: EOFError: EOF when reading a line.
Look for: run(), check_output() or Popen() with neither stdin= nor input=.
Sources: https://docs.python.org/3/library/subprocess.html#popen-constructor
    https://github.com/datalad/datalad-next/pull/166
    https://github.com/langchain-ai/deepagents/issues/4329
    https://github.com/MoonshotAI/kimi-cli/pull/1579
    https://github.com/vcs-python/vcspull/issues/574
    https://man.archlinux.org/man/tty.4
    https://manpages.ubuntu.com/manpages/noble/man5/ssh_config.5.html
"""

import contextlib
import os
import subprocess
import sys

from kit import broken, check, fixed, hangs, main, returns

DEVNULL = subprocess.DEVNULL
READS = [sys.executable, "-c", "import sys; print(sys.stdin.read(), end='')"]
ASKS = [sys.executable, "-c", "input('Continue? ')"]
ASKS_TERMINAL = [sys.executable, "-c", "print(open('/dev/tty').readline())"]
POSIX = "which standard input a child gets on Windows was not measured"


def put_on_stdin(text):
    """Puts text into a pipe, our new standard input; returns its other end."""
    reader, writer = os.pipe()
    os.write(writer, text)
    os.dup2(reader, 0)
    return writer


@broken(returns(""), posix=POSIX)
def child_takes_our_input():
    os.close(put_on_stdin(b"one\ntwo\n"))
    subprocess.check_output(READS, timeout=30)
    return sys.stdin.read()


@fixed(returns("one\ntwo\n"))
def child_gets_no_input():
    os.close(put_on_stdin(b"one\ntwo\n"))
    subprocess.check_output(READS, stdin=DEVNULL, timeout=30)
    return sys.stdin.read()


@fixed(returns((b"its own", "one\ntwo\n")))
def child_gets_input_of_its_own():
    os.close(put_on_stdin(b"one\ntwo\n"))
    output = subprocess.check_output(READS, input=b"its own", timeout=30)
    return output, sys.stdin.read()


@check(returns(("one\n", b"", "two\n")), posix=POSIX)
def reading_ahead_hides_the_fault():
    os.close(put_on_stdin(b"one\ntwo\n"))
    line = sys.stdin.readline()  # takes both lines: it reads by the chunk
    return line, subprocess.check_output(READS, timeout=30), sys.stdin.read()


@broken(hangs(at="subprocess.run("), posix=POSIX)
def question_waits_for_an_answer():
    put_on_stdin(b"")  # like a terminal: it is open, and nobody types
    subprocess.run(ASKS, capture_output=True)


@fixed(returns((1, b"EOFError: EOF when reading a line")))
def question_meets_the_end_of_input():
    put_on_stdin(b"")
    done = subprocess.run(ASKS, stdin=DEVNULL, capture_output=True, timeout=30)
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
    subprocess.run(ASKS_TERMINAL, stdin=DEVNULL, capture_output=True)


@fixed(returns((1, b"OSError: [Errno 6] No such device or address: '/dev/tty'")), linux="the message is that of Linux")
def new_session_has_no_terminal():
    have_a_terminal()
    done = subprocess.run(
        ASKS_TERMINAL,
        stdin=DEVNULL,
        start_new_session=True,
        capture_output=True,
        timeout=30,
    )
    return done.returncode, done.stderr.splitlines()[-1]


if __name__ == "__main__":
    main()
