"""Make a child flush each line: `-u`, flush=True or a pty; on a pipe its output waits.

print() and C's stdio write line by line to a terminal, but to a pipe only when a buffer
is full, or at exit. Who waits for an answer waits for ever, and a killed child's last
words are lost. bufsize= is about our own end, which must flush, too. It reads ahead:
where readline() has taken two lines, select() sees an empty pipe.

Scope: not needed where the output is read when the child has ended by itself. `-u` is
    Python's, as is PYTHONUNBUFFERED=1; grep has --line-buffered, others theirs. From
    3.14 on, Python's buffer has 128 KiB, no longer 8. A pty turns a newline into
    CR LF. readline() has no timeout: let a thread read, and get(timeout) from its queue.
Symptom: readline() waits for what was printed. In a terminal it works. Or: the output
    before a crash or a timeout is missing.
Look for: readline() or `for line in child.stdout` with a child that lives on; select().
Sources: https://docs.python.org/3/library/sys.html#sys.stdout
    https://docs.python.org/3/using/cmdline.html#cmdoption-u
    https://github.com/IanHarvey/bluepy/pull/47
"""

import os
import queue
import select
import sys
import threading
from subprocess import PIPE, Popen

from kit import broken, check, fixed, hangs, main, returns

ECHO = "import sys\nfor line in sys.stdin: print(line, end='')"
DONE = "import sys; print('done'); print('up', file=sys.stderr); sys.stdin.read()"
TWO_LINES = "import os, sys; os.write(1, b'one\\ntwo\\n'); sys.stdin.read()"
POSIX = "lines end otherwise on Windows, and select() takes no pipe there"


def ask(argv, line):
    with Popen(argv, stdin=PIPE, stdout=PIPE) as child:
        child.stdin.write(line)
        child.stdin.flush()  # our buffer
        return child.stdout.readline()


@broken(hangs(at="child.stdout.readline()"), posix=POSIX)
def answer_waits_in_a_buffer():
    return ask([sys.executable, "-c", ECHO], b"hello\n")


@fixed(returns(b"hello\n"), posix=POSIX)
def answer_comes_at_once():
    return ask([sys.executable, "-u", "-c", ECHO], b"hello\n")


@broken(hangs(at="child.stdout.readline()"), posix=POSIX)
def question_waits_in_a_buffer():
    child = Popen([sys.executable, "-u", "-c", ECHO], stdin=PIPE, stdout=PIPE)
    child.stdin.write(b"hello\n")
    return child.stdout.readline()


@fixed(returns("hello\n"), posix=POSIX)
def question_goes_at_once():
    options = {"stdin": PIPE, "stdout": PIPE, "encoding": "utf-8"}
    argv = [sys.executable, "-u", "-c", ECHO]
    with Popen(argv, bufsize=1, **options) as child:  # 1: by the line, in text mode
        child.stdin.write("hello\n")
        return child.stdout.readline()


@broken(hangs(at="child.stdout.readline()"), posix=POSIX)
def other_programs_have_buffers_too():
    return ask(["grep", "."], b"hello\n")


@fixed(returns(b"hello\n"), posix=POSIX)
def other_programs_have_options_too():
    return ask(["grep", "--line-buffered", "."], b"hello\n")


def output_of_a_killed_child(**options):
    child = Popen([sys.executable, "-c", DONE], stdin=PIPE, stdout=PIPE, stderr=PIPE, **options)
    child.stderr.readline()  # which is flushed by the line
    child.kill()
    return child.communicate()[0]


@broken(returns(b""), posix=POSIX)
def last_words_are_lost():
    return output_of_a_killed_child()


@fixed(returns(b"done\n"), posix=POSIX)
def last_words_are_kept():
    return output_of_a_killed_child(env={**os.environ, "PYTHONUNBUFFERED": "1"})


@broken(hangs(at="select.select("), posix=POSIX)
def select_does_not_see_our_buffer():
    child, lines = Popen([sys.executable, "-c", TWO_LINES], stdin=PIPE, stdout=PIPE), []
    while len(lines) < 2:
        select.select([child.stdout], [], [])
        lines.append(child.stdout.readline())  # reads both, returns one
    return lines


def lines_of(stream):
    lines = queue.SimpleQueue()

    def read():
        for line in stream:
            lines.put(line)
        lines.put(b"")  # the end

    threading.Thread(target=read, daemon=True).start()
    return lines


@fixed(returns([b"one\n", b"two\n", b""]), posix=POSIX)
def thread_reads_all():
    child = Popen([sys.executable, "-c", TWO_LINES], stdin=PIPE, stdout=PIPE)
    lines = lines_of(child.stdout)
    both = [lines.get(timeout=30), lines.get(timeout=30)]
    child.stdin.close()
    child.wait(30)
    return [*both, lines.get(timeout=30)]


@check(returns(b"hello\r\n"), posix=POSIX)
def terminal_gets_each_line():
    ours, theirs = os.openpty()
    with Popen([sys.executable, "-c", ECHO], stdin=PIPE, stdout=theirs) as child:
        child.stdin.write(b"hello\n")
        child.stdin.flush()
        with open(ours, "rb", buffering=0) as terminal:
            return terminal.readline()


@check(returns(b"x", until=(3, 13)) | hangs(at="child.stdout.read(1)", since=(3, 14)), posix=POSIX)
def buffer_has_grown():
    program = "import sys; print('x' * 130_000); sys.stdin.read()"
    child = Popen([sys.executable, "-c", program], stdin=PIPE, stdout=PIPE)
    first = child.stdout.read(1)
    child.kill()
    return first if child.wait(30) else None


if __name__ == "__main__":
    main()
