"""run_tree() against adversaries: what it returns or raises must be right, and no process may survive.

Every process that a test starts inherits a mark in its environment, by which survivors are found. `--rounds N` runs
each adversary N times in a row.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any, Callable

import pytest

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
sys.path.insert(0, str(RECIPES))

run_tree: Callable[..., Any] = importlib.import_module("run_tree").run_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="survivors are found in /proc")

MARK = "HANGPROOF_TREE"
BOUND = 60  # seconds within which anything must happen, on the busiest machine


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("number", range(metafunc.config.getoption("--rounds")), ids="round{}".format)


@pytest.fixture(autouse=True)
def environment(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Marks all that the test starts, and looks for it when the test has ended."""
    monkeypatch.setenv(MARK, str(uuid.uuid4()))
    try:
        yield
        assert survivors() == {}
    finally:
        for pid in survivors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def survivors() -> dict[int, str]:
    """The processes with our mark and their commands. A zombie has no environment."""
    mark, found = f"{MARK}={os.environ[MARK]}".encode(), {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone, or another user's
            if mark in (path / "environ").read_bytes().split(b"\0"):
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + BOUND
    while not holds():
        assert time.monotonic() < give_up, survivors()
        time.sleep(0.01)


def python(source: str) -> list[str]:
    return [sys.executable, "-S", "-c", source]


def sh(source: str) -> list[str]:
    return ["sh", "-c", source]


# In these the leader goes on when what it started has got where it wanted to go.
SETSID = """
import os, signal
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(writer, b".")
    signal.pause()
os.read(reader, 1)
"""
DAEMON = """
import os, signal
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(writer, b".")
        signal.pause()
    os._exit(0)
os.read(reader, 1)
os.wait()
"""
RELAY = """
import os, sys, time
os.open(sys.argv[1], os.O_WRONLY)
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(writer, b".")
    end = time.monotonic() + 3
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
    os._exit(0)
os.read(reader, 1)
"""
SAY = "os.write(1, b'up')\n"
LINGER = SAY + "signal.pause()\n"
STUBBORN = "(trap '' TERM; echo up; exec sleep 999) & wait"

# -------------------------------------------------------------------------------------------------- the leader ends


@pytest.mark.parametrize(
    ("argv", "output"),
    [
        pytest.param(sh("sleep 999 >/dev/null 2>&1 & echo up"), b"up\n", id="leaves a child"),
        pytest.param(sh("sleep 999 & head -c 300000 /dev/zero"), bytes(300000), id="descendant holds the pipe"),
        pytest.param(python(SETSID + SAY), b"up", id="descendant in a session of its own"),
        pytest.param(python(DAEMON + SAY), b"up", id="daemon"),
        pytest.param(python("import os; os.setsid()\n" + SAY), b"up", id="leader in a session of its own"),
        pytest.param(sh("trap '' INT TERM HUP; kill -INT 0; kill -TERM 0; kill -HUP 0; echo up"), b"up\n", id="kill 0"),
    ],
)
def test_leader_exits_well(argv: list[str], output: bytes) -> None:
    done = run_tree(argv, timeout=BOUND, capture_output=True)
    assert (done.args, done.returncode, done.stdout, done.stderr) == (argv, 0, output, b"")


def test_daemon_that_forks_and_exits_again_and_again(tmp_path: Path) -> None:
    """It moves too fast to be found in /proc, but holds a FIFO open: at its end nobody is left."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run_tree([*python(RELAY), fifo], timeout=BOUND).returncode == 0
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 3", 3), ("kill -KILL $$", -9), ("kill -TERM $$", -15), ("sleep 999 & exit 255", 255)],
)
def test_status(command: str, status: int) -> None:
    assert run_tree(sh(command), timeout=BOUND).returncode == status
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_tree(sh(f"echo out; echo err >&2; {command}"), timeout=BOUND, capture_output=True, check=True)
    error = caught.value
    assert (error.returncode, error.output, error.stderr, error.cmd[0]) == (status, b"out\n", b"err\n", "sh")


def test_check_lets_success_pass() -> None:
    assert run_tree(["true"], timeout=BOUND, check=True).returncode == 0


# ------------------------------------------------------------------------------------------------ the time is over


def expire(argv: list[str], grace: float = BOUND, **options: Any) -> subprocess.TimeoutExpired:
    """Lets it time out. The timeout grows until the command came far enough to say "up"."""
    for timeout in (0.2, 1, 5, 25):
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            run_tree(argv, timeout=timeout, grace=grace, capture_output=True, **options)
        assert survivors() == {}
        assert (caught.value.cmd, caught.value.timeout) == (argv, timeout)
        if b"up" in (caught.value.output or b""):
            return caught.value
    raise AssertionError(f"{argv} said {caught.value.output!r}")


@pytest.mark.parametrize(
    ("argv", "grace"),
    [
        pytest.param(sh("sleep 999 & echo up; wait"), BOUND, id="plain"),
        pytest.param(sh(STUBBORN), 0.1, id="descendant ignores SIGTERM"),
        pytest.param(sh("trap '' TERM; sleep 999 & echo up; wait"), 0.1, id="all ignore SIGTERM"),
        pytest.param(python(SETSID + LINGER), 0.1, id="descendant in a session of its own"),
        pytest.param(python(DAEMON + LINGER), 0.1, id="daemon"),
        pytest.param(sh("sleep 999 & kill -STOP $!; echo up; wait"), 0.1, id="stopped descendant"),
        pytest.param(sh("sleep 999 >/dev/null & echo up; kill -STOP $$"), 0.1, id="stopped leader"),
    ],
)
def test_timeout(argv: list[str], grace: float) -> None:
    assert expire(argv, grace).output.startswith(b"up")


def test_where_nobody_adopts(tmp_path: Path) -> None:
    """Elsewhere than on Linux the group is all that can be ended."""
    path = tmp_path / "run_tree.py"
    path.write_text((RECIPES / "run_tree.py").read_text("utf-8").replace('"linux"', '"another"'), "utf-8")
    run = runpy.run_path(str(path))["run_tree"]
    assert run(sh("sleep 999 & exit 3"), timeout=BOUND).returncode == 3
    wait_until(lambda: not survivors())
    with pytest.raises(subprocess.TimeoutExpired):
        run(sh("trap '' TERM; sleep 999 & wait"), timeout=0.2, grace=0.1)
    wait_until(lambda: not survivors())


def test_full_pipe_keeps_nobody_from_ending(tmp_path: Path) -> None:
    clean_up = f"trap 'sleep 0.2; head -c 300000 /dev/zero; echo done >{tmp_path}/done; exit' TERM"
    expire(sh(f"{clean_up}; echo up; sleep 999 & wait"))
    assert (tmp_path / "done").read_text() == "done\n"


def test_timeout_while_a_character_is_cut() -> None:
    error = expire(python("import os, time; os.write(1, b'up \\xc3'); time.sleep(999)"), encoding="utf-8")
    assert (error.output, error.stderr) == (b"up \xc3", None)


# ---------------------------------------------------------------------------------------------- the caller is ended

STUBBORN_TREE = python(DAEMON + f"os.execvp('sh', {sh(STUBBORN)})")
CALLER = f"""
import os, signal, sys, threading
sys.path.insert(0, {str(RECIPES)!r})
sys.dont_write_bytecode = True
from run_tree import run_tree
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored
TREE = {STUBBORN_TREE}
"""


@contextlib.contextmanager
def caller(source: str) -> Iterator[subprocess.Popen[bytes]]:
    """A script that calls run_tree(), once its tree has said "up"."""
    with subprocess.Popen([sys.executable, "-c", CALLER + source], stdout=PIPE, stderr=PIPE) as child:
        try:
            assert child.stdout
            assert child.stdout.readline() == b"up\n"
            yield child
        finally:
            child.kill()


def test_keyboard_interrupt() -> None:
    with caller("run_tree(TREE, timeout=999, grace=0.1)") as child:
        child.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in child.communicate(timeout=BOUND)[1]
        assert child.returncode == -signal.SIGINT
        assert survivors() == {}


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_caller_is_killed(signum: signal.Signals) -> None:
    with caller("run_tree(TREE, timeout=999, grace=0.1)") as child:
        child.send_signal(signum)
        assert child.wait(BOUND) == -signum
        wait_until(lambda: not survivors())


def test_caller_is_killed_while_its_fork_lives() -> None:
    forking = """
reader, writer = os.pipe()
threading.Thread(target=run_tree, args=[TREE], kwargs={"timeout": 999, "grace": 0.1, "stdout": writer}).start()
said = os.read(reader, 9)
if os.fork() == 0:
    signal.pause()
os.write(1, said)
signal.pause()
"""
    with caller(forking) as child:
        (fork,) = (pid for pid in survivors() if parent(pid) == child.pid and not leads_session(pid))
        child.kill()
        assert child.wait(BOUND) == -signal.SIGKILL
        wait_until(lambda: survivors().keys() == {fork})
        os.kill(fork, signal.SIGKILL)
        wait_until(lambda: not survivors())


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()[1])


def leads_session(pid: int) -> bool:
    return os.getsid(pid) == pid


# ------------------------------------------------------------------------------------------ what the caller inherits


@contextlib.contextmanager
def ignored(signum: signal.Signals) -> Iterator[None]:
    before = signal.signal(signum, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signum, before)


def test_caller_ignores_sigchld() -> None:
    with ignored(signal.SIGCHLD):
        assert [run_tree(sh(f"exit {n}"), timeout=BOUND).returncode for n in (0, 3)] == [0, 3]
        with pytest.raises(FileNotFoundError):
            run_tree(["no such program"], timeout=BOUND)
        expire(sh(STUBBORN), 0.1)
    assert survivors() == {}


def blocked_and_ignored(run: Callable[..., Any]) -> list[int]:
    """As the command has inherited them; 32 and 33 belong to libc."""
    ask = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]
    return [int(mask, 16) & 0x7FFFFFFF for mask in run(ask, timeout=BOUND, stdout=PIPE).stdout.split()[1::2]]


def test_caller_ignores_sigterm() -> None:
    with ignored(signal.SIGTERM):
        expire(sh(STUBBORN), 0.1)
        assert blocked_and_ignored(run_tree) == blocked_and_ignored(subprocess.run)


def test_caller_blocks_sigterm() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        expire(sh(STUBBORN), 0.1)
        assert blocked_and_ignored(run_tree) == blocked_and_ignored(subprocess.run)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_caller_without_standard_streams(tmp_path: Path) -> None:
    source = """
done = run_tree(["sh", "-c", "cat; echo err >&2; exit 3"], timeout=60, capture_output=True, input=b"in")
open(sys.argv[1], "w").write(repr((done.returncode, done.stdout, done.stderr)))
"""
    said = tmp_path / "said"
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "-", sys.executable, "-c", CALLER + source, str(said)]
    assert subprocess.run(closing, timeout=BOUND, check=False).returncode == 0
    assert said.read_text() == repr((3, b"in", b"err\n"))


def test_caller_with_many_descriptors() -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(1024 // 2):  # select() takes no number above
            for fd in os.pipe():
                stack.callback(os.close, fd)
        assert run_tree(sh("exit 3"), timeout=BOUND).returncode == 3


def test_many_at_once() -> None:
    def one(number: int) -> tuple[int, bytes]:
        done = run_tree(sh(f"sleep 999 & echo {number}; exit {number}"), timeout=BOUND, capture_output=True)
        return done.returncode, done.stdout

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(24))) == [(number, b"%d\n" % number) for number in range(24)]


def test_others_are_not_signalled() -> None:
    unmarked = {"PATH": os.defpath}
    ended = subprocess.Popen(sh("exit 8"), env=unmarked)
    with subprocess.Popen(sh("read line; exit 7"), stdin=PIPE, env=unmarked) as alive:
        expire(sh(STUBBORN), 0.1)
        assert alive.poll() is None
    assert (alive.returncode, ended.wait(BOUND)) == (7, 8)


# ------------------------------------------------------------------------------------------------- as with subprocess


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"argv": ["no such program"]}, FileNotFoundError, "no such program"),
        ({"argv": ["/no/such/program"]}, FileNotFoundError, "/no/such/program"),
        ({"argv": [RECIPES / "none"]}, FileNotFoundError, str(RECIPES / "none")),
        ({"argv": ["true"], "cwd": "/no/such/directory"}, FileNotFoundError, "/no/such/directory"),
        ({"argv": ["/dev/null"]}, PermissionError, "/dev/null"),
        ({"argv": ["/"]}, PermissionError, "/"),
    ],
)
def test_what_cannot_be_started(options: dict[str, Any], error: type[OSError], named: str) -> None:
    raised = []
    for run in (run_tree, subprocess.run):
        with pytest.raises(error) as caught:
            run(options["argv"], timeout=BOUND, **{key: value for key, value in options.items() if key != "argv"})
        raised.append((caught.value.errno, caught.value.strerror, os.fspath(caught.value.filename)))
    assert raised[0] == raised[1]
    assert raised[0][2] == named


def test_nothing_to_start() -> None:
    for run in (run_tree, subprocess.run):
        with pytest.raises(IndexError):
            run([], timeout=BOUND)


BOTH = "printf 'out\\r\\n\\303\\251'; printf 'err' >&2"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"args": ["cat"], "input": os.urandom(1 << 20)}, id="large input"),
        pytest.param({"args": ["true"], "input": bytes(1 << 20)}, id="input that is not read"),
        pytest.param({"args": ["cat"]}, id="no input"),
        pytest.param({"args": ["cat"], "input": "\xe9\n", "text": True}, id="text"),
        pytest.param({"args": sh(BOTH), "encoding": "latin-1"}, id="encoding"),
        pytest.param({"args": sh(BOTH), "encoding": "ascii", "errors": "backslashreplace"}, id="errors"),
        pytest.param({"args": sh("pwd"), "cwd": RECIPES}, id="cwd"),
        pytest.param({"args": ["bin/sh", "-c", "pwd"], "cwd": "/"}, id="relative program"),
        pytest.param({"args": [Path("/bin/echo"), b"\xff\xfe", Path("a b"), "\u00e9", ""]}, id="paths and bytes"),
        pytest.param({"args": "pwd"}, id="a text is a program"),
        pytest.param({"args": Path("/bin/pwd")}, id="a path is a program"),
        pytest.param({"args": ["/usr/bin/env"], "env": {}}, id="no environment"),
        pytest.param({"args": ["env"], "env": {"A": "1"}}, id="environment without PATH"),
        pytest.param({"args": ["env"], "env": {"LC_CTYPE": "C", "PATH": "/usr/bin:/bin"}}, id="locale"),
        pytest.param({"args": ["readlink", "/proc/self/fd/0"]}, id="standard input"),
        pytest.param({"args": ["ls", "/proc/self/fd"]}, id="descriptors"),
    ],
)
def test_same_as_run(options: dict[str, Any]) -> None:
    ours, theirs = options.copy(), options.copy()
    if "input" not in options:
        theirs["stdin"] = subprocess.DEVNULL
    done = run_tree(ours.pop("args"), timeout=BOUND, capture_output=True, **ours)
    expected = subprocess.run(theirs.pop("args"), timeout=BOUND, capture_output=True, check=False, **theirs)
    assert vars(done) == vars(expected)


def test_redirections(tmp_path: Path) -> None:
    path = tmp_path / "said"
    with path.open("wb") as file:
        run_tree(sh(BOTH), timeout=BOUND, stdout=file, stderr=subprocess.STDOUT)
    assert path.read_bytes() == b"out\r\n\xc3\xa9err"
    with path.open("rb") as file:
        assert run_tree(["cat"], timeout=BOUND, stdin=file, stdout=PIPE).stdout == b"out\r\n\xc3\xa9err"


def test_output_is_passed_through(capfd: pytest.CaptureFixture[str]) -> None:
    done = run_tree(sh("echo out; echo err >&2"), timeout=BOUND)
    assert (done.stdout, done.stderr, *capfd.readouterr()) == (None, None, "out\n", "err\n")


@pytest.mark.parametrize(
    "options",
    [{"capture_output": True, "stdout": PIPE}, {"input": b"", "stdin": PIPE}, {"shell": True}, {"pass_fds": [1]}],
    ids=" ".join,
)
def test_options_that_contradict(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        run_tree(["true"], timeout=BOUND, **options)
