"""What two hundred commands do to whoever runs them."""

import os
import signal
import sys
import threading
import time
import traceback

from kit import check, main, prints, raises, returns

# Says that it begins, waits until eight have begun, stays a while beside others, says that it ends.
COUNTED = """\
printf + >>"$0"
until grep -q '+.*+.*+.*+.*+.*+.*+.*+' "$0"; do sleep .01; done
sleep .05
printf - >>"$0"
"""
ENDLESS = ["sleep", "infinity"]
FAILS = ["sh", "-c", 'echo "cannot $1 it" >&2; exit 3', "sh", "convert"]


def attempt(commands):
    """What the answer makes of it: the texts that it returns, or "failed", with the traceback printed."""
    from answer import convert_all

    try:
        return convert_all(commands)
    except Exception:  # noqa: BLE001 - whatever the answer raises is its way to fail
        traceback.print_exc()
        return "failed"


def python(program, *arguments):
    return [sys.executable, "-c", program, *arguments]


@check(returns(True))
def results_are_in_order():
    """the request itself: 200 commands, the first ones slower than the others"""
    commands = [["sh", "-c", 'test "$0" -gt 3 || sleep 0.3; echo "$0"', str(number)] for number in range(200)]
    return attempt(commands) == [f"{number}\n" for number in range(200)]


@check(returns((200, 8)))
def eight_run_at_once():
    """sp-bound-child-fanout: 200 commands which count themselves, and wait until eight of them run"""
    log = os.path.join(os.environ["TMPDIR"], "log")
    done = attempt([["sh", "-c", COUNTED, log]] * 200)
    running, most = 0, 0
    with open(log, encoding="utf-8") as steps:
        for step in steps.read():
            running += 1 if step == "+" else -1
            most = max(most, running)
    os.remove(log)
    return len(done), most


@check(returns(200))
def open_files_suffice():
    """sp-bound-child-fanout: no more than 64 files may be open"""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    return len(attempt([["echo", "converted"]] * 200))


@check(returns("failed") & prints("cannot convert it"))
def failure_says_why():
    """sp-check-and-capture: one command fails, and says why on stderr"""
    return attempt([["true"], FAILS, ["true"]])


@check(returns("failed"))
def failure_ends_the_others():
    """sp-bound-child-fanout: one command fails while others, earlier in the list, run without end"""
    return attempt([ENDLESS] * 3 + [FAILS] + [["true"]] * 100)


@check(returns("failed"))
def failure_ends_the_trees_of_the_others():
    """sp-kill-the-process-tree: as before, and those others have started further ones"""
    return attempt([["sh", "-c", "sleep infinity & sleep infinity; wait"]] * 3 + [FAILS])


@check(returns("failed"))
def failure_stops_what_is_queued():
    """thread-explicit-shutdown: the first command fails, and no more than a few of the others are started then"""
    log = os.path.join(os.environ["TMPDIR"], "log")
    answer = attempt([FAILS] + [["sh", "-c", 'sleep 0.1; printf x >>"$0"', log]] * 199)
    started = os.path.getsize(log) if os.path.exists(log) else 0
    if started:
        os.remove(log)
    return answer if started < 100 else f"{started} were started"


def interrupt_when_we_wait():
    """Not before the main thread has slept for a while: while it starts commands, no answer is safe from it."""
    asleep = 0
    while asleep < 20:
        time.sleep(0.01)
        with open("/proc/self/stat", encoding="utf-8") as stat:
            asleep = asleep + 1 if stat.read().rpartition(")")[2].split()[0] == "S" else 0
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@check(raises(KeyboardInterrupt, ""))
def interrupt_ends_all():
    """sp-bound-child-fanout: Ctrl-C while eight commands run without end"""
    reader, writer = os.pipe()

    def interrupt():
        for _ in range(8):
            os.read(reader, 1)  # another one runs
        interrupt_when_we_wait()

    threading.Thread(target=interrupt, daemon=True).start()
    ready = f"/proc/{os.getpid()}/fd/{writer}"
    return attempt([["sh", "-c", 'printf . >"$0"; exec sleep infinity', ready]] * 20)


@check(returns([1_000_000] * 3))
def both_streams_are_full():
    """sp-communicate-not-wait: 200 kB on stderr, then a megabyte on stdout"""
    full = python("import sys; sys.stderr.write('e' * 200_000); sys.stdout.write('o' * 10**6)")
    return [len(text) for text in attempt([full] * 3)]


@check(returns(["", ""]))
def input_is_empty():
    """sp-close-stdin: the commands read their input, and ours is a pipe on which nothing comes"""
    reader, _ = os.pipe()
    os.dup2(reader, 0)
    return attempt([["cat"], ["cat"]])


@check(returns(["a b; $(echo X) *\n"]))
def arguments_stay_as_they_are():
    """sp-argv-not-shell: an argument with a space and metacharacters"""
    return attempt([["echo", "a b; $(echo X) *"]])


@check(returns(True))
def odd_bytes_are_no_failure():
    """sp-explicit-text-encoding: bytes that are not UTF-8"""
    return "converted" in attempt([python(r"import sys; sys.stdout.buffer.write(b'\xff converted')")])[0]


@check(returns(["converted\n"]))
def success_does_not_wait_for_what_it_left():
    """sp-eof-is-not-exit: a command succeeds, but a child of it holds the pipe for as long as we live"""
    fifo = os.path.join(os.environ["TMPDIR"], "fifo")
    os.mkfifo(fifo)
    os.open(fifo, os.O_RDWR)
    answer = attempt([["sh", "-c", 'cat "$0" & echo converted', fifo]])
    os.remove(fifo)
    return answer


@check(returns([]))
def nothing_to_do_is_no_failure():
    """the request itself: an empty list"""
    return attempt([])


if __name__ == "__main__":
    main()
