"""Read a child's pipes with communicate(); never wait() on output that nobody reads.

A pipe holds a bounded amount, 64 KiB on Linux. When it is full, the child sleeps in
write() until somebody reads. A parent that waits for the child's exit first, or for
another of its pipes, is who should read: neither can move, and nothing is raised.
communicate() serves all three pipes at once, and then reaps the child.

Scope: not needed when the output goes to a file or to DEVNULL, which never fill up.
Symptom: parent and child stand still without using the CPU. It works while the output
    is short, and hangs once it exceeds a pipe.
Look for: PIPE with wait(), read() of one pipe while another is open, stdin.write().
Sources: https://docs.python.org/3/library/subprocess.html#subprocess.Popen.wait
    https://man7.org/linux/man-pages/man7/pipe.7.html
"""

import subprocess
import sys
import tempfile

from kit import broken, check, fixed, hangs, main, returns

PIPE = subprocess.PIPE
CHATTY = [sys.executable, "-c", "print('x' * 1_000_000, end='')"]
LOUD = [sys.executable, "-c", "import sys; sys.stderr.write('x' * 1_000_000)"]
ECHO = [sys.executable, "-c", "import sys; [print(i, end='') for i in sys.stdin]"]


@broken(hangs(at="child.wait()"))
def wait_before_reading():
    child = subprocess.Popen(CHATTY, stdout=PIPE)
    child.wait()  # for an exit that waits for a reader
    return len(child.stdout.read())


@fixed(returns(1_000_000))
def communicate_reads_and_reaps():
    child = subprocess.Popen(CHATTY, stdout=PIPE)
    output, _ = child.communicate()
    return len(output)


@broken(hangs(at="child.stdout.read()"))
def read_one_pipe_while_the_other_fills():
    child = subprocess.Popen(LOUD, stdout=PIPE, stderr=PIPE)
    output = child.stdout.read()  # for an end that waits for room in stderr
    return len(output), len(child.stderr.read())


@fixed(returns((0, 1_000_000)))
def communicate_reads_both_pipes():
    child = subprocess.Popen(LOUD, stdout=PIPE, stderr=PIPE)
    output, errors = child.communicate()
    return len(output), len(errors)


@broken(hangs(at="child.stdin.write("))
def write_while_the_answer_fills():
    child = subprocess.Popen(ECHO, stdin=PIPE, stdout=PIPE)
    child.stdin.write(b"line\n" * 200_000)  # for room that waits for a reader
    child.stdin.close()
    return len(child.stdout.read())


@fixed(returns(1_000_000))
def communicate_writes_and_reads():
    child = subprocess.Popen(ECHO, stdin=PIPE, stdout=PIPE)
    output, _ = child.communicate(b"line\n" * 200_000)
    return len(output)


@check(returns((0, b"Python")))
def short_output_hides_the_fault():
    child = subprocess.Popen([sys.executable, "-V"], stdout=PIPE)
    return child.wait(), child.stdout.read()[:6]


@check(returns((0, 1_000_000)))
def a_file_never_fills_up():
    with tempfile.TemporaryFile() as file:
        status = subprocess.Popen(CHATTY, stdout=file).wait()
        return status, file.tell()  # the child's position: they share it


if __name__ == "__main__":
    main()
