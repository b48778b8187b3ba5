"""What a build command does to whoever runs it."""

import os
import signal
import subprocess
import sys
import threading
import traceback

from kit import check, main, prints, raises, returns

LINUX = "programs of Linux"
TREE = "sleep infinity & sleep infinity; wait"
STUBBORN = "(trap '' TERM; exec sleep infinity) & exec sleep infinity"
ESCAPING = "setsid sleep infinity & exec sleep infinity"
DAEMON = """
import os, sys, time
print("built", flush=True)
reader, writer = os.pipe()
if os.fork():
    os.close(writer)
    os.read(reader, 1)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.write(writer, b".")
os.execvp("sleep", ["sleep", "infinity"])
"""


def attempt(argv, timeout=30.0):
    """What the answer makes of it: the text that it returns, or "failed", with the traceback printed."""
    from answer import run_build

    try:
        return run_build(argv, timeout)
    except Exception:  # noqa: BLE001 - whatever the answer raises is its way to fail
        traceback.print_exc()
        return "failed"


# For programs that import the answer.
BESIDE = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}


def python(program, *arguments):
    return [sys.executable, "-c", program, *arguments]


@check(returns("built\n"))
def output_comes_back():
    """the request itself"""
    return attempt(["echo", "built"])


@check(returns("a b; $(echo X) *\n"))
def arguments_stay_as_they_are():
    """sp-argv-not-shell: an argument with a space and metacharacters"""
    return attempt(["echo", "a b; $(echo X) *"])


@check(returns("failed") & prints("no rule to make target"))
def failure_says_why():
    """sp-check-and-capture: status 2, and the reason on stderr"""
    return attempt(["sh", "-c", 'echo "no rule to $1 target" >&2; exit 2', "sh", "make"])


@check(returns("failed"))
def death_is_a_failure():
    """sp-check-and-capture: the command is killed by a signal"""
    return attempt(["sh", "-c", "kill -KILL $$"])


@check(returns("failed"))
def missing_program_is_a_failure():
    """the request itself: no such program"""
    return attempt(["no-such-program-here"])


@check(returns("failed"))
def nothing_survives_the_timeout():
    """sp-timeout-always: the command has started another one"""
    return attempt(["sh", "-c", TREE], 0.5)


@check(returns("failed"))
def nothing_ignores_the_timeout():
    """sp-kill-the-process-tree: a descendant ignores SIGTERM, and its parent does not"""
    return attempt(["sh", "-c", STUBBORN], 0.5)


@check(returns("failed"), linux=LINUX)
def nothing_escapes_the_timeout():
    """sp-kill-the-process-tree: a descendant has a session of its own"""
    return attempt(["sh", "-c", ESCAPING], 0.5)


@check(returns("built\n"))
def nothing_survives_success():
    """sp-kill-the-process-tree: the command succeeds and leaves a child, whose output goes elsewhere"""
    return attempt(["sh", "-c", "sleep infinity >/dev/null 2>&1 & echo built"])


@check(returns("built\n"))
def success_is_no_timeout():
    """sp-eof-is-not-exit: the command succeeds, but a child of it holds the pipe"""
    return attempt(["sh", "-c", "sleep infinity & echo built"], 5)


@check(returns("built\n"), linux=LINUX)
def daemon_does_not_hold_it_up():
    """sp-kill-the-process-tree: the command succeeds and leaves a daemon that has forked twice"""
    return attempt(python(DAEMON), 10)


@check(returns(1_000_000))
def both_streams_are_full():
    """sp-communicate-not-wait: 200 kB on stderr, then a megabyte on stdout"""
    return len(attempt(python("import sys; sys.stderr.write('e' * 200_000); sys.stdout.write('o' * 10**6)")))


@check(returns(""))
def input_is_empty():
    """sp-close-stdin: the command reads its input, and ours is a pipe on which nothing comes"""
    reader, _ = os.pipe()
    os.dup2(reader, 0)
    return attempt(["cat"], 10)


@check(returns(True))
def odd_bytes_are_no_failure():
    """sp-explicit-text-encoding: bytes that are not UTF-8"""
    return "built" in attempt(python(r"import sys; sys.stdout.buffer.write(b'\xff built\n')"))


POOR = "from answer import run_build; import sys; print(ascii(run_build([sys.executable, '-c', sys.argv[1]], 30)))"


@check(returns("'caf\\xe9\\n'\n"))
def locale_does_not_decide():
    """sp-explicit-text-encoding: UTF-8 comes, and the locale is C"""
    environment = {**BESIDE, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    output = python(r"import sys; sys.stdout.buffer.write(b'caf\xc3\xa9\n')")[2]
    return subprocess.run(
        python(POOR, output), env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    ).stdout


@check(raises(KeyboardInterrupt, ""))
def nothing_survives_an_interrupt():
    """sp-popen-only-when-needed: Ctrl-C, which goes to us alone when the command has its own session"""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)

    def interrupt():
        os.read(reader, 1)  # it runs
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    os.environ["READY"] = f"/proc/{os.getpid()}/fd/{writer}"
    return attempt(["sh", "-c", "echo >$READY; sleep infinity & sleep infinity"])


CALLER = "from answer import run_build; run_build(['sh', '-c', 'echo >$READY; sleep infinity & sleep infinity'], 60)"


def end_the_caller(signum):
    reader, writer = os.pipe()
    BESIDE["READY"] = f"/proc/{os.getpid()}/fd/{writer}"
    caller = subprocess.Popen(
        python(CALLER), env=BESIDE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.read(reader, 1)  # the command runs
    caller.send_signal(signum)
    caller.wait(30)
    return "ended"


@check(returns("ended"), linux=LINUX)
def nothing_survives_the_end_of_the_caller():
    """sp-cleanup-on-sigterm: SIGTERM to the release script"""
    return end_the_caller(signal.SIGTERM)


if __name__ == "__main__":
    main()
