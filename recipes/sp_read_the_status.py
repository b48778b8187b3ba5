"""Take every status but 0 for a failure, and run a pipeline's commands one by one.

A shell reports its last command's status: of `a | b` that of b, of `a; b`, too. So half
a result looks complete. A negative returncode is the signal that ended the child: `> 0`
misses it, and sys.exit() turns -9 into 247, where a shell says 128 + 9. Before somebody
waits, returncode is None, which is false as 0 is.

Scope: POSIX. `set -o pipefail` is not in every sh. Some statuses are answers: grep's 1,
    and -13, SIGPIPE, of who writes to a `head` that has seen enough. What is too large
    for a file streams from a Popen to the next command: read both statuses.
Symptom: exit status 247 or 137, and nothing was logged. Or a pipeline leaves half a
    result, and the program goes on.
Look for: `|` or `;` in a shell's command; returncode > 0 or == 1; sys.exit(returncode).
Sources: https://docs.python.org/3/library/subprocess.html#subprocess.Popen.returncode
    https://github.com/pallets/werkzeug/issues/144
    https://github.com/kaldi-asr/kaldi/issues/1666
"""

import sys
from subprocess import DEVNULL, PIPE, CalledProcessError, Popen, check_output, run
from tempfile import TemporaryFile

from kit import broken, check, exits, fixed, main, raises, returns

FAILS = ["sh", "-c", "echo half; exit 3"]
KILLED = ["sh", "-c", "kill -KILL $$"]
POSIX = "the programs, and the statuses of signals, are those of a POSIX system"


@broken(returns(b"half\n"), posix=POSIX)
def pipeline_in_a_shell():
    return check_output("(echo half; exit 3) | sort", shell=True)


def pipeline(first, second, timeout):
    options = {"timeout": timeout, "check": True}
    with TemporaryFile() as between:
        run(first, stdin=DEVNULL, stdout=between, **options)
        between.seek(0)
        return run(second, stdin=between, stdout=PIPE, **options).stdout


@fixed(raises(CalledProcessError, "returned non-zero exit status 3."), posix=POSIX)
def commands_one_by_one():
    return pipeline(FAILS, ["sort"], timeout=30)


@broken(returns("deployed"), posix=POSIX)
def signal_is_no_status_above_0():
    done = run(KILLED, timeout=30)
    if done.returncode > 0:
        raise CalledProcessError(done.returncode, done.args)
    return "deployed"


@fixed(raises(CalledProcessError, "died with <Signals.SIGKILL: 9>."), posix=POSIX)
def every_status_but_0():
    run(KILLED, stdin=DEVNULL, timeout=30, check=True)
    return "deployed"


@broken(exits(247), posix=POSIX)
def pass_it_on_as_it_is():
    sys.exit(run(KILLED, timeout=30).returncode)


def exit_like(status):
    sys.exit(status if status >= 0 else 128 - status)  # as a shell does


@fixed(exits(137), posix=POSIX)
def pass_it_on_as_a_shell_does():
    exit_like(run(KILLED, stdin=DEVNULL, timeout=30).returncode)


@broken(returns("has ended well"), posix=POSIX)
def none_is_false():
    child = Popen(["sh", "-c", "read line; exit 3"], stdin=PIPE)
    answer = "has failed" if child.returncode else "has ended well"
    child.communicate(b"line\n")
    return answer


@fixed(returns("has failed"), posix=POSIX)
def wait_and_read():
    child = Popen(["sh", "-c", "read line; exit 3"], stdin=PIPE)
    child.communicate(b"line\n", timeout=30)
    return "has failed" if child.returncode else "has ended well"


def status(argv):
    return run(argv, stdin=DEVNULL, timeout=30).returncode


@check(returns([0, 0, 3, 137, 127]), posix=POSIX)
def what_a_shell_reports():
    inner = "sh -c 'kill -KILL $$'; exit $?"
    commands = "(exit 3) | true", "(exit 3); true", "set -e; (exit 3); true", inner, "no-such-program"
    return [status(["sh", "-c", command]) for command in commands]


@check(returns([0, 255]), posix=POSIX)
def kept_are_8_bits():
    return [status([sys.executable, "-c", f"import sys; sys.exit({number})"]) for number in (256, -1)]


def stream(first, second):
    with Popen(first, stdin=DEVNULL, stdout=PIPE) as producer:
        done = run(second, stdin=producer.stdout, stdout=DEVNULL, timeout=30)
    return producer.returncode, done.returncode


@check(returns([(3, 0), (-13, 0)]), posix=POSIX)
def each_of_a_stream_has_a_status():
    return [stream(FAILS, ["sort"]), stream(["yes"], ["head", "-n1"])]  # -13: SIGPIPE, all is well


if __name__ == "__main__":
    main()
