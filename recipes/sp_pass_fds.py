"""Name what a child inherits in pass_fds; never open it to all by close_fds=False.

An inheritable descriptor goes to every child started with `close_fds=False`, by another
thread, too. A pipe ends when the last copy of its write end is closed: its reader waits
for a child that knows of none. A port or a lock is held in the same way. pass_fds gives
one child what it names, by the same number, and leaves our own flag alone.

Scope: a pipe works, too, where you close your write end before you read; a file needs
    no end, and never fills up. In the child it is inheritable again.
Symptom: read() waits, though the writer has exited. Another child has the pipe open, or
    the reader. After a restart: OSError: [Errno 98] Address already in use.
Look for: close_fds=False; set_inheritable(); dup2(); a write end of os.pipe() left open.
Sources: https://docs.python.org/3/library/subprocess.html#popen-constructor
    https://docs.python.org/3/library/os.html#fd-inheritance
    https://github.com/confluentinc/ducktape/pull/140
"""

import os
import socket
import sys
import warnings
from contextlib import contextmanager
from subprocess import DEVNULL, Popen, check_output, run
from tempfile import TemporaryFile

from kit import broken, check, fixed, hangs, main, raises, returns

REPORTS = ["sh", "-c", "echo done >/dev/fd/$0"]
TELL = "import os, sys; print(os.get_inheritable(int(sys.argv[1])))"
SERVER = ["sleep", "infinity"]
POSIX = "Windows has no pass_fds"
LINUX = "an address without a port, which others could take"


@broken(hangs(at="open(reader).read()"), posix=POSIX)
def open_it_to_all():
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    Popen([*REPORTS, str(writer)], close_fds=False)
    Popen(SERVER, close_fds=False)  # by another thread, perhaps
    os.close(writer)
    return open(reader).read()  # the server holds a writer


def run_with_report(argv):
    with TemporaryFile() as report:
        fd = report.fileno()
        options = {"stdin": DEVNULL, "timeout": 60, "check": True}
        run([*argv, str(fd)], pass_fds=[fd], **options)
        report.seek(0)
        return report.read()


@fixed(returns(b"done\n"), posix=POSIX)
def name_it():
    return run_with_report(REPORTS)


@contextmanager
def running(argv, **options):
    with Popen(argv, stdin=DEVNULL, **options) as child:
        try:
            yield
        finally:
            child.kill()


@broken(hangs(at="report.read()"), posix=POSIX)
def wait_for_itself():
    reader, writer = os.pipe()
    run([*REPORTS, str(writer)], pass_fds=[writer], timeout=60)
    with open(reader, "rb") as report:
        return report.read()  # holds writer, too


@fixed(returns(b"done\n"), posix=POSIX)
def pipe_with_one_writer():
    reader, writer = os.pipe()
    with running(SERVER), open(reader, "rb") as report:  # the server holds none
        run([*REPORTS, str(writer)], pass_fds=[writer], timeout=60)
        os.close(writer)
        return report.read()


def listen_again_beside_a_child(close_fds):
    with socket.socket(socket.AF_UNIX) as listener:
        address = f"\0{os.getcwd()}"  # free when the last copy is closed
        listener.bind(address)
        listener.set_inheritable(True)
        with running(SERVER, close_fds=close_fds):
            listener.close()
            with socket.socket(socket.AF_UNIX) as again:
                again.bind(address)


@broken(raises(OSError, "[Errno 98] Address already in use"), linux=LINUX)
def child_keeps_the_address():
    listen_again_beside_a_child(close_fds=False)


@fixed(returns(None), linux=LINUX)
def address_is_free_again():
    listen_again_beside_a_child(close_fds=True)


@check(returns((False, True)))
def dup2_makes_it_inheritable():
    return os.get_inheritable(os.dup(2)), os.get_inheritable(os.dup2(2, 9))


@check(returns((b"True\n", False)), posix=POSIX)
def inheritable_again_in_the_child_alone():
    fd = os.dup(2)
    argv = [sys.executable, "-c", TELL, str(fd)]
    return check_output(argv, pass_fds=[fd], timeout=60), os.get_inheritable(fd)


@check(raises(RuntimeWarning, "pass_fds overriding close_fds."), posix=POSIX)
def pass_fds_closes_the_others():
    warnings.simplefilter("error")
    run(["true"], close_fds=False, pass_fds=[2], timeout=60)


if __name__ == "__main__":
    main()
