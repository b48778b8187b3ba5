"""Run one program under a supervisor that watches it, counts what it leaves behind, and ends all of it.

The supervisor is a forked process in a session of its own. It adopts the orphans of what it started (Linux), so that
neither a double fork nor a new session escapes it. It holds one end of a pipe, the lifeline, whose other end is its
parent's: when the parent dies, by SIGKILL too, the supervisor kills and cleans up as ever. It uses no subprocess,
which would take the statuses of children that it must count.

A program is stopped when it stands still (linux.py says when that is a hang), when it has repeated what it was
declared to repeat, when it floods its output, and when its time is over.

Sources: PR_SET_CHILD_SUBREAPER(2const), waitpid(2), signal(7), core(5), faulthandler in Python's documentation.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, NoReturn

import linux

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FLOOD = 1 << 20  # bytes of output after which a program is stopped
DUMP = "Fatal Python error: Aborted\n"  # what comes before the stacks of a program that was stopped
_LOOK_EVERY = 0.1  # seconds
_KEPT = ("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")  # they decide where bytecode goes, nothing else


class Run(NamedTuple):
    """One program to run.

    argv: the command, executable by its path. `files` (name and text of each) are written to a directory first, and
        the path of the first one is added, then `arguments`, and with `reply` `--reply FILE`: what the program writes
        there comes back as `Observed.answer`.
    bound: seconds after which it is stopped as late.
    watch: whether the kernel's account is used to find out that it stands still.
    hang: whether it is expected to; then threads that wake again and again do not count as life, and a timer that
        does not wake is reported. `despite` names threads that are not looked at.
    spin: a text and how often it must be printed, while the main thread stands still, to be taken for endless.
    patience: where the kernel does not tell, seconds after which it is taken to stand still; 0 is never.
    """

    argv: tuple[str, ...]
    bound: float
    files: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    reply: bool = False
    watch: bool = False
    hang: bool = False
    despite: tuple[str, ...] = ()
    spin: tuple[str, int] | None = None
    patience: float = 0.0


class Observed(NamedTuple):
    """What one run did.

    status: its exit status, negative for a signal; None when it was stopped.
    stopped: why: "hang", "spin", "timer", "late" or "flood"; "failed" when it could not be run; empty when it ended by
        itself.
    detail: what else is known of that.
    output: what it and its children wrote, stacks included when it was stopped.
    processes, files, segments: what it left behind, by name; empty when it was stopped.
    counted: which of these three this machine can count.
    """

    status: int | None = None
    stopped: str = ""
    detail: str = ""
    answer: str = ""
    output: str = ""
    processes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    seconds: float = 0.0


class Supervised(NamedTuple):
    """A run in progress: its result comes through the pipe `result`."""

    pid: int
    result: int
    lifeline: int
    done: Observed | None = None


def start(run: Run) -> Supervised:
    """Starts `run` under a supervisor. The calling process is forked, so it must have one thread only."""
    if not hasattr(os, "fork"):
        return Supervised(0, -1, -1, _run_without_supervisor(run))
    result, result_end = os.pipe()
    lifeline_end, lifeline = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # or the supervisor would hold, and write, the same text
    unmoved = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, unmoved)  # or the child could take one in the caller's handlers
    pid = os.fork()
    if pid == 0:
        _live(run, lifeline_end, result_end)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(result_end)
    os.close(lifeline_end)
    return Supervised(pid, result, lifeline)


def finish(supervised: Supervised) -> Observed:
    """Waits for the result. Whatever a signal handler raises meanwhile is passed on after all is cleaned up.

    A supervisor that fails itself prints why to standard error, and the run has "failed".
    """
    if supervised.done is not None:
        return supervised.done
    try:
        text = _read_all(supervised.result)
    except BaseException:
        abandon([supervised])
        raise
    os.close(supervised.result)
    os.close(supervised.lifeline)
    _, status = os.waitpid(supervised.pid, 0)
    if not text:
        return Observed(stopped="failed", detail=f"its supervisor ended without a result, with wait status {status}")
    fields = json.loads(text)
    return Observed._make(tuple(field) if isinstance(field, list) else field for field in fields)


def abandon(running: Iterable[Supervised]) -> None:
    """Ends these runs: each supervisor kills what it started, removes its files and ends."""
    running = [each for each in running if each.done is None]
    for each in running:
        os.close(each.lifeline)
    for each in running:
        _read_all(each.result)
        os.close(each.result)
        os.waitpid(each.pid, 0)


def _live(run: Run, lifeline: int, result: int) -> NoReturn:
    """The supervisor's whole life. It must not come back into the code of the process that it was forked from."""
    status = 1
    try:
        os.setsid()  # Ctrl-C in the terminal is for the parent, which then closes the lifeline
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(0o022)
        _keep_only(lifeline, result)
        try:
            observed = _Supervisor(run, lifeline).observe()
        except OSError as error:  # no room, no directory for temporary files, too many processes
            observed = Observed(stopped="failed", detail=str(error))
        text = json.dumps(observed).encode()
        try:
            while text:
                text = text[os.write(result, text) :]
        except BrokenPipeError:  # the parent has died meanwhile: nobody wants to know
            pass
        status = 0
    except BaseException:  # noqa: BLE001 - told here, and by the missing result
        traceback.print_exc()
    finally:
        os._exit(status)


class _Supervisor:
    """Runs one program, adopts what it leaves behind, and ends all of it."""

    def __init__(self, run: Run, lifeline: int) -> None:
        self._run, self._lifeline = run, lifeline
        self._sees = _become_subreaper() and linux.sees()
        self._owns_shared_memory = _hide_shared_memory()
        self._leader = self._output = -1
        self._status: int | None = None
        self._text = bytearray()
        self._main: linux.Task | None = None  # where it last stood, and how often the text had come when it came there
        self._count_before = 0

    def observe(self) -> Observed:
        home = _make_home()
        try:
            seen = self._run_program(home)
            if seen.stopped:
                return seen
            segments = tuple(sorted(os.listdir("/dev/shm"))) if self._owns_shared_memory else ()
            return seen._replace(files=_files_below(home), segments=segments)
        finally:
            self._end_tree()
            _remove(home)

    def _run_program(self, home: str) -> Observed:
        argv = _command(self._run, home)
        began = time.monotonic()
        self._leader, self._output = _spawn(argv, home)
        stopped, detail = self._follow(began)
        seconds = time.monotonic() - began
        if stopped in ("hang", "spin", "late"):
            self._dump_stacks()
        left = () if stopped else self._settle()
        self._end_tree()
        self._drain()
        status = None if stopped else self._status
        output = self._text.decode("utf-8", "backslashreplace")
        answer = _read(f"{home}/reply") if self._run.reply else ""
        can = (("processes", self._sees), ("files", True), ("segments", self._owns_shared_memory))
        counted = tuple(kind for kind, able in can if able)
        return Observed(status, stopped, detail, answer, output, left, counted=counted, seconds=round(seconds, 3))

    def _follow(self, began: float) -> tuple[str, str]:
        """Waits until the program ends or must be stopped; returns why it must, and what else is known of that."""
        wake = _wake_on_child()
        poll = select.poll()
        for fd in (self._lifeline, self._output, wake):
            poll.register(fd, select.POLLIN)
        watch = linux.Watch(os.getpid(), self._leader, self._run.despite)
        next_look = began
        while True:
            self._reap()
            if self._status is not None:
                return "", ""
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _LOOK_EVERY
                stopped, detail = self._look(watch, time.monotonic() - began)
                if stopped:
                    return stopped, detail
            for fd, _ in poll.poll(1000 * max(0.0, next_look - time.monotonic()) + 1):
                if fd == self._lifeline:
                    return "abandoned", ""
                if fd == wake:
                    os.read(wake, 4096)
                elif not self._take():
                    poll.unregister(fd)
            if len(self._text) > FLOOD:
                return "flood", ""

    def _look(self, watch: linux.Watch, seconds: float) -> tuple[str, str]:
        """One look at the whole tree: why the program must be stopped now, if it must."""
        run, still = self._run, False
        if run.spin and self._repeats(run.spin[0]) >= run.spin[1]:
            return "spin", ""
        if run.watch:
            look = watch.look()
            still = look.times >= 3
            if look.at_rest or (run.hang and look.at_rest_beside_pollers):
                return "hang", ""
            waiting = [str(task) for task, wakes in look.timers if wakes < 3 or task.tid == self._leader]
            if run.hang and still and look.seconds >= 4 and waiting:
                return "timer", ", ".join(waiting)
        elif run.patience and seconds > run.patience:
            return "hang", "calibrated"
        if seconds > run.bound:
            busy = run.watch and not still and watch.processes > 1
            return "late", f"{watch.processes} processes came and went" if busy else ""
        return "", ""

    def _repeats(self, text: str) -> int:
        """How often the text came while the main thread stood in one call without a timeout."""
        count = self._text.count(text.encode())
        if self._run.watch:
            main = next((task for task in linux.tasks(self._leader) if task.tid == self._leader), None)
            waits = main is not None and main.call is not None and not main.call.timed
            place = main._replace(state="") if main and waits else None
            if place is None or place != self._main:
                self._main, self._count_before = place, count
        return count - self._count_before

    def _take(self) -> bool:
        """Takes what the output pipe holds; False once nobody holds its other end."""
        try:
            chunk = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return True
        self._text += chunk
        return bool(chunk)

    def _drain(self) -> None:
        before = -1
        while before < len(self._text) < 2 * FLOOD:
            before = len(self._text)
            self._take()

    def _reap(self) -> bool:
        """Collects every child that has ended, adopted ones too; False once there is no child."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._leader:
                self._status = os.waitstatus_to_exitcode(status)

    def _dump_stacks(self) -> None:
        """Has Python print its stacks and die of it: `-X faulthandler` does so on SIGABRT, in a deadlock too.

        Whatever else could print is stopped first, or that would come between. Then threads that replace children stand
        still as well: faulthandler may crash on the stack of one that runs.
        """
        watch, give_up = linux.Watch(os.getpid(), self._leader), time.monotonic() + (2 if self._sees else 0.2)
        self._stop_others()
        while (not self._sees or watch.look().times < 2) and time.monotonic() < give_up:
            self._drain()
            self._reap()
            time.sleep(0.01)
            self._stop_others()
        self._drain()
        os.kill(self._leader, signal.SIGABRT)  # it has not been reaped, so the number is still its own
        os.kill(self._leader, signal.SIGCONT)
        give_up = time.monotonic() + 10
        while self._status is None and time.monotonic() < give_up:
            self._stop_others()
            self._drain()
            time.sleep(0.002)
            self._reap()

    def _stop_others(self) -> None:
        if self._sees:
            for process in _living():
                if process.pid != self._leader and process.state != "T" and not _is_helper(process):
                    linux.send(process, signal.SIGSTOP)
        elif self._status is None:  # they cannot be listed: the whole group is stopped, and its leader goes on
            self._signal_group(signal.SIGSTOP)
            os.kill(self._leader, signal.SIGCONT)

    def _settle(self) -> tuple[str, ...]:
        """What is left when all that was about to end has ended: a helper lives some milliseconds longer."""
        if not self._sees:
            return ()
        watch = linux.Watch(os.getpid(), main=0)
        give_up = time.monotonic() + 10
        while self._reap():
            self._drain()
            tree = _living()
            left = tuple(linux.command(each.pid) or each.name for each in tree if not _is_helper(each))
            if tree and (not left or watch.look().times >= 3):
                return left
            if time.monotonic() > give_up:
                return left or ("one that forks and exits again and again",)
            time.sleep(0.02)
        return ()

    def _end_tree(self) -> None:
        """Kills all that is left. multiprocessing's helpers go last and by themselves: they remove semaphores."""
        began = time.monotonic()
        if not self._sees and self._leader > 0:
            self._end_group()
        while self._reap():
            seconds = time.monotonic() - began
            tree = _living() if self._sees else []
            for process in [each for each in tree if not _is_helper(each)] or (tree if seconds > 10 else []):
                linux.send(process, signal.SIGKILL)
            if seconds > 20:
                raise RuntimeError(f"cannot end {[linux.command(process.pid) for process in tree]}")
            time.sleep(0.002)

    def _end_group(self) -> None:
        """The same where processes cannot be listed: only those that stayed in the program's group are reached."""
        self._signal_group(signal.SIGCONT)  # what _stop_others has stopped could not end by itself
        give_up = time.monotonic() + 2
        while self._status is not None and self._reap() and time.monotonic() < give_up:
            time.sleep(0.005)  # what only needs a moment to end by itself
        if self._status is None:
            os.kill(self._leader, signal.SIGKILL)  # it may be so young that it leads no group yet
        self._signal_group(signal.SIGKILL)
        while self._status is None and self._reap():
            time.sleep(0.002)

    def _signal_group(self, signum: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it is empty, or (macOS) has only zombies
            os.killpg(self._leader, signum)


def _command(run: Run, home: str) -> list[str]:
    folder = os.path.join(home, "p")
    os.mkdir(folder)
    for name, text in run.files:
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    first = [os.path.join(folder, name) for name, _ in run.files[:1]]
    reply = ["--reply", os.path.join(home, "reply")] if run.reply else []
    return [*run.argv, *first, *run.arguments, *reply]


def _spawn(argv: Sequence[str], home: str) -> tuple[int, int]:
    """Starts `argv` in a session of its own and a clean state; returns its pid and the read end of its output."""
    import resource  # POSIX only

    output, output_end = os.pipe()
    os.set_blocking(output, False)
    pid = os.fork()
    if pid:
        os.close(output_end)
        return pid, output
    try:
        os.setsid()
        for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(signum, signal.SIG_DFL)  # what the caller ignores or blocks, the program must not
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (1 if most else 0, most))  # 1: neither core nor crash reporter
        os.dup2(output_end, 1)
        os.dup2(output_end, 2)
        os.chdir(f"{home}/d")
        os.execve(argv[0], tuple(argv), _environment(home))
    except BaseException as error:  # noqa: BLE001 - told where its output goes
        os.write(2, f"cannot start {argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _environment(home: str) -> dict[str, str]:
    """The caller's environment, without what changes how Python behaves, in a known locale."""
    unknown = ("PYTHON", "LC_", "LANG")
    kept = {key: value for key, value in os.environ.items() if key in _KEPT or not key.startswith(unknown)}
    return {**kept, "LC_ALL": "C.UTF-8", "TMPDIR": f"{home}/t", "PWD": f"{home}/d"}


def _make_home() -> str:
    """A directory with a working directory `d` and a temporary directory `t`. The path of a socket has at most 107
    bytes, of which multiprocessing takes 35 below `t`: where TMPDIR is long, /tmp is taken if that is possible."""
    folder = os.path.abspath(tempfile.gettempdir())
    if len(os.fsencode(folder)) > 40 and os.access("/tmp", os.W_OK | os.X_OK):
        folder = "/tmp"
    home = tempfile.mkdtemp(prefix="hp-", dir=folder)
    os.mkdir(f"{home}/d")
    os.mkdir(f"{home}/t")
    return home


def _files_below(home: str) -> tuple[str, ...]:
    """Files, links, and directories with nothing in them."""
    walks = [walk for part in ("d", "t") for walk in os.walk(f"{home}/{part}")]
    paths = [os.path.join(path, name) for path, _, names in walks for name in names]
    folders = [os.path.join(path, name) for path, names, _ in walks for name in names]
    paths += [folder for folder in folders if os.path.islink(folder) or not os.listdir(folder)]
    paths = [os.path.relpath(path, home) for path in paths]
    return tuple(os.fsencode(path).decode("utf-8", "backslashreplace") for path in paths)


def _remove(home: str) -> None:
    """Removes it all, directories that forbid it included."""

    def insist(remove: Callable[[str], object], path: str, _: object) -> None:
        os.chmod(os.path.dirname(path), 0o700)
        if remove in (os.unlink, os.rmdir):
            remove(path)
        else:  # it could not be listed
            os.chmod(path, 0o700)
            _remove(path)

    shutil.rmtree(home, onerror=insist)


def _living() -> list[linux.Process]:
    return [process for process in linux.descendants(os.getpid()) if process.state not in "ZX"]


def _is_helper(process: linux.Process) -> bool:
    """multiprocessing's resource tracker or fork server; what the latter forks has its command line, too."""
    command = linux.command(process.pid)
    if "from multiprocessing.resource_tracker import main" in command:
        return True
    server = "from multiprocessing.forkserver import main"
    return server in command and server not in linux.command(process.parent)


def _become_subreaper() -> bool:
    """Makes orphans below this process its children (Linux); returns whether that worked."""
    set_child_subreaper = 36
    libc = _libc()
    return libc is not None and bool(libc.prctl(set_child_subreaper, 1, 0, 0, 0) == 0)


def _hide_shared_memory() -> bool:
    """Gives this process and what it starts a /dev/shm of their own (Linux; as an ordinary user in a user namespace).

    Nothing else tells whose a segment is, or removes what was killed while it made one; this directory is gone with
    the last process that sees it. Returns whether that worked. It is first tried in a process of its own, because a
    namespace of which one half is forbidden is worse than none.
    """
    for new_user in (False, True):
        pid = os.fork()
        if pid == 0:
            os._exit(0 if _make_shared_memory(new_user) else 1)
        if os.waitpid(pid, 0)[1] == 0:
            return _make_shared_memory(new_user)
    return False


def _make_shared_memory(new_user: bool) -> bool:
    new_mounts, new_users, private, recursive, harmless = 0x20000, 0x10000000, 1 << 18, 1 << 14, 2 | 4  # mount(2)
    libc, user, group = _libc(), os.getuid(), os.getgid()
    if libc is None or not os.path.isdir("/dev/shm") or libc.unshare(new_mounts | new_user * new_users) != 0:
        return False
    if new_user:
        same = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
        try:
            for name, text in same:
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(text)
        except OSError:
            return False
    everything = (b"none", b"/", None, private | recursive, None)  # or the next mount would be seen outside
    shared_memory = (b"none", b"/dev/shm", b"tmpfs", harmless, b"mode=1777")
    return all(libc.mount(*mount) == 0 for mount in (everything, shared_memory))


def _libc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes
    except ImportError:  # a Python that was built without libffi
        return None
    return ctypes.CDLL(None)


def _wake_on_child() -> int:
    """A descriptor that becomes readable when a child ends."""
    wake, wake_end = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # with no handler nothing would be written
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    return wake


def _keep_only(*fds: int) -> None:
    """Closes all other descriptors: with a copy of a sibling's lifeline here, that one would never see the end."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    edges = [2, *sorted(fds), 1 << 16]
    for low, high in zip(edges, edges[1:]):
        os.closerange(low + 1, high)


def _read_all(fd: int) -> str:
    return b"".join(iter(lambda: os.read(fd, 1 << 16), b"")).decode()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            return file.read()
    except FileNotFoundError:  # the program ended, or was ended, before it had anything to say
        return ""


def _run_without_supervisor(run: Run) -> Observed:
    """Where there is no fork (Windows; unproven): a bound, and one kill of what can be reached."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hp-") as home, tempfile.TemporaryFile() as output:
        child = subprocess.Popen(_command(run, home), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=home)
        try:
            status, stopped = child.wait(run.patience or run.bound), ""
        except subprocess.TimeoutExpired:
            status, stopped = None, "hang" if run.patience else "late"
            tree = ["taskkill", "/T", "/F", "/PID", str(child.pid)]
            subprocess.run(tree, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True)
            child.wait(30)
        output.seek(0)
        text = output.read(FLOOD).decode("utf-8", "backslashreplace")
        answer = _read(os.path.join(home, "reply"))
    seconds = round(time.monotonic() - began, 3)
    return Observed(status, stopped, "calibrated" if stopped == "hang" else "", answer, text, seconds=seconds)
