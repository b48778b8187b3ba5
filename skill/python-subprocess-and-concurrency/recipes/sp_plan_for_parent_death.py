"""Let your child watch a pipe for its end; a parent that is killed cleans up nothing.

SIGKILL, the OOM killer or a crash ends the parent at once. Its children go on, under
PID 1; no `finally` has run. But the kernel closes what the parent had open. The
child reads a pipe of which the parent alone has the write end, and gets the end. Popen
gives its pipes to nobody else; fork() copies them.

Scope: a child that you write. For others: run_tree(), or on Linux the launcher in the
    proof, with PR_SET_PDEATHSIG: it comes when the thread that started the child ends.
    multiprocessing: `proc-plan-for-parent-death`.
Symptom: after `kill -9`, its children still run. Or after an OOM kill. They hold the
    ports and locks that the restarted program needs. Or: children die when a thread
    ends (-9).
Look for: Popen of a server or worker that reads nothing from us; prctl in preexec_fn.
Sources: https://man7.org/linux/man-pages/man2/pr_set_pdeathsig.2const.html
    https://github.com/Tencent-Hunyuan/UniRL/pull/276
"""

import os
import signal
import sys
from subprocess import PIPE, Popen
from threading import Thread

from kit import broken, check, dies, fixed, leaves, main, returns

POSIX = "signals"
LINUX = "prctl() is Linux'"


def be_killed():
    os.kill(os.getpid(), signal.SIGKILL)  # by the OOM killer


@broken(dies("SIGKILL") & leaves(1), posix=POSIX)
def nobody_ends_the_child():
    Popen(["sleep", "infinity"])
    be_killed()


WORKER = """\
import os, signal, threading

def end_with_the_parent():
    os.read(0, 1)  # until nobody can write
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_with_the_parent, daemon=True).start()
print("up", flush=True)
threading.Event().wait()  # the work
"""


def start_worker(source=WORKER):
    argv = [sys.executable, "-c", source]
    return Popen(argv, stdin=PIPE, stdout=PIPE)  # to be kept


@fixed(dies("SIGKILL"), posix=POSIX)
def child_ends_by_itself():
    worker = start_worker()
    worker.stdout.readline()
    be_killed()


@check(dies("SIGKILL") & leaves(2), posix=POSIX)
def forked_sibling_holds_the_pipe():
    worker = start_worker()
    worker.stdout.readline()
    if os.fork() == 0:
        signal.pause()
    be_killed()


@check(returns((0, b"done\n")))
def watching_does_not_keep_it_alive():
    source = WORKER.replace("threading.Event().wait()", "print('done')")
    worker = start_worker(source)
    worker.stdout.readline()
    return worker.wait(60), worker.stdout.read()


LAUNCHER = """\
import ctypes, os, sys
if ctypes.CDLL(None).prctl(1, 9, 0, 0, 0) or os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")  # before prctl() could help
os.execvp(sys.argv[2], sys.argv[2:])
"""


def start_bound(argv):
    launcher = [sys.executable, "-ISc", LAUNCHER, str(os.getpid())]
    return Popen([*launcher, *argv], stdin=PIPE, stdout=PIPE)


def answer(child):
    child.stdin.write(b"line\n")
    child.stdin.flush()
    return child.stdout.readline()


@broken(returns((b"line\n", -9)), linux=LINUX)
def bound_to_a_thread():
    answers, children = [], []

    def start():
        children.append(start_bound(["cat"]))
        answers.append(answer(children[0]))

    thread = Thread(target=start)
    thread.start()
    thread.join()
    return answers[0], children[0].wait(60)  # killed


@fixed(returns(b"line\n"), linux=LINUX)
def bound_to_the_main_thread():
    child = start_bound(["cat"])
    answer(child)
    thread = Thread(target=answer, args=[child])
    thread.start()
    thread.join()
    try:
        return answer(child)
    finally:
        child.kill()
        child.wait(60)


@check(dies("SIGKILL"), linux=LINUX)
def any_program_ends_with_its_parent():
    child = start_bound(["sh", "-c", "echo up; exec sleep infinity"])
    child.stdout.readline()
    be_killed()


if __name__ == "__main__":
    main()
