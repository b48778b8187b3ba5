"""What Linux says about processes and their threads: the pack's one reader of /proc.

It only reads. The exception is `send`, which signals a process of which the caller holds a description, and only
while it is still that process. Everything here works for an ordinary user on that user's own children; `tells()`
says whether this machine lets it.

Sources: proc_pid_stat(5), proc_pid_status(5), proc_pid_syscall(5), syscalls(2), pidfd_open(2).
"""

from __future__ import annotations

import os
import platform
import signal
import sys
import time
from typing import NamedTuple

PROC = "/proc"

# Calls that can sleep, by machine: number, name, and where the timeout is. A timeout is "null:N" (argument N is a
# pointer, none when null), "negative:N" (argument N is an int, none when negative), "always", or "" for never.
_TIMEOUTS = {
    "poll": "negative:2",
    "epoll_wait": "negative:3",
    "epoll_pwait": "negative:3",
    "epoll_pwait2": "null:3",
    "select": "null:4",
    "pselect6": "null:4",
    "ppoll": "null:2",
    "futex": "null:3",
    "futex_waitv": "null:3",
    "futex_wait": "null:4",
    "rt_sigtimedwait": "null:2",
    "semtimedop": "null:3",
    "mq_timedsend": "null:4",
    "mq_timedreceive": "null:4",
    "recvmmsg": "null:4",
    "io_getevents": "null:4",
    "io_pgetevents": "null:4",
    "io_uring_enter": "always",  # the timeout is inside the ring: unknown from here, so never taken for endless
    "nanosleep": "always",
    "clock_nanosleep": "always",
    "restart_syscall": "always",  # only calls with a timeout are restarted in this way after a stop
}

_NUMBERS = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23: "select",
        34: "pause", 35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
        47: "recvmsg", 61: "wait4", 65: "semop", 69: "msgsnd", 70: "msgrcv", 72: "fcntl", 73: "flock",
        128: "rt_sigtimedwait", 130: "rt_sigsuspend", 202: "futex", 208: "io_getevents", 219: "restart_syscall",
        220: "semtimedop", 230: "clock_nanosleep", 232: "epoll_wait", 242: "mq_timedsend", 243: "mq_timedreceive",
        247: "waitid", 257: "openat", 270: "pselect6", 271: "ppoll", 275: "splice", 281: "epoll_pwait",
        288: "accept4", 299: "recvmmsg", 333: "io_pgetevents", 426: "io_uring_enter", 441: "epoll_pwait2",
        449: "futex_waitv", 455: "futex_wait",
    },
    "aarch64": {
        4: "io_getevents", 22: "epoll_pwait", 25: "fcntl", 32: "flock", 56: "openat", 63: "read", 64: "write",
        65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll", 76: "splice",
        95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 128: "restart_syscall",
        133: "rt_sigsuspend", 137: "rt_sigtimedwait", 182: "mq_timedsend", 183: "mq_timedreceive", 188: "msgrcv",
        189: "msgsnd", 192: "semtimedop", 193: "semop", 202: "accept", 203: "connect", 206: "sendto",
        207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 242: "accept4", 243: "recvmmsg", 260: "wait4",
        292: "io_pgetevents", 426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv", 455: "futex_wait",
    },
}  # fmt: skip


class Process(NamedTuple):
    """One process. `start` is in clock ticks since boot: with `pid` it names the process and no later one. `reaped`
    is the page faults of all children that it has waited for, which grows with each of them."""

    pid: int
    parent: int
    start: int
    state: str
    name: str
    reaped: int = 0


class Call(NamedTuple):
    """The system call in which a task sleeps, and whether the call ends by itself when time has passed."""

    name: str
    timed: bool


class Task(NamedTuple):
    """One thread as the kernel knows it. `switches` counts how often it left a processor; `call` is None when
    the task is not asleep in a system call, or when the kernel does not say."""

    pid: int
    tid: int
    name: str
    state: str
    switches: int
    call: Call | None

    def __str__(self) -> str:
        call = f" in {self.call.name}" if self.call else ""
        return f"pid {self.pid} ({self.name}{call})"


def sees() -> bool:
    """Whether /proc can be read and is about this process's own pid namespace: else its numbers are other processes."""
    try:
        return os.readlink(f"{PROC}/self") == str(os.getpid())
    except OSError:
        return False


def tells() -> bool:
    """Whether this machine says enough to prove a hang: processes, their tasks, and the calls they sleep in."""
    if not sys.platform.startswith("linux") or platform.machine() not in _NUMBERS or not sees():
        return False
    own = f"{PROC}/self/task/{os.getpid()}"
    return all(_read(f"{own}/{name}") is not None for name in ("stat", "status", "syscall"))


def processes() -> dict[int, Process]:
    """Every process that can be seen, by pid. It takes `sees()`."""
    found = (_process(int(name)) for name in os.listdir(PROC) if name.isdecimal())
    return {process.pid: process for process in found if process}


def descendants(root: int) -> list[Process]:
    """What `root` started and what that started, as far as it still hangs together: parents before children."""
    children: dict[int, list[Process]] = {}
    for process in processes().values():
        children.setdefault(process.parent, []).append(process)
    tree = list(children.get(root, ()))
    for process in tree:  # grows while it is walked: breadth first
        tree += children.get(process.pid, ())
    return tree


def tasks(pid: int) -> list[Task]:
    """The threads of one process; empty when it is gone."""
    try:
        tids = os.listdir(f"{PROC}/{pid}/task")
    except OSError:
        return []
    alarmed = bool(_read(f"{PROC}/{pid}/timers"))  # by timer_create(), as timeout(1) does: a signal will end the wait
    return [task for task in (_task(pid, int(tid), alarmed) for tid in tids) if task]


def command(pid: int) -> str:
    """The command line, arguments separated by spaces; empty for a zombie or a process that is gone."""
    return (_read(f"{PROC}/{pid}/cmdline") or "").replace("\0", " ").strip()


def send(process: Process, signum: int) -> bool:
    """Signals `process` unless it is gone. Its number may have been given away meanwhile: a pidfd taken before
    the start time is compared keeps the signal from whoever has it now. Returns whether it was sent."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        now = _process(process.pid)
        if now is None or now.start != process.start:
            return False
        signal.pidfd_send_signal(pidfd, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True


class Look(NamedTuple):
    """What a Watch has seen since the tree last moved: how often it was seen unmoved, for how many seconds, the
    tasks that wait for time to pass with the number of times each woke, and whether the main thread waits for
    something other than time."""

    times: int
    seconds: float
    timers: tuple[tuple[Task, int], ...]
    main_waits: bool

    @property
    def at_rest(self) -> bool:
        """Nothing in the tree will move again by itself: every task sleeps, none of them with a timeout."""
        return self.times >= 3 and self.main_waits and not self.timers

    @property
    def at_rest_beside_pollers(self) -> bool:
        """As `at_rest`, but for threads that wake, find nothing to do and sleep again."""
        return self.times >= 3 and self.main_waits and all(wakes >= 3 for _, wakes in self.timers)


class Watch:
    """Tells a process tree that is stuck from one that works or waits for time to pass.

    Sleeping without using the CPU proves nothing: `time.sleep(60)` looks like that. What counts is that every task
    sleeps in a call without a timeout and has not been switched in since the look before. Tasks whose call has a
    timeout may be housekeeping beside the hang (they wake again and again) or the very thing that will end it (they
    have not woken yet), so they are counted apart. Call `look` at intervals of about 100 ms.

    `root`'s descendants are watched, `main` is the pid whose main thread must not be timed, and threads whose name
    begins with one in `despite` are left out. `processes` is how many different ones were seen so far.
    """

    def __init__(self, root: int, main: int, despite: tuple[str, ...] = ()) -> None:
        self._root, self._main, self._despite = root, main, despite
        self._pids: set[int] = set()
        self._family: frozenset[tuple[int, int]] = frozenset()
        self._restart({})

    @property
    def processes(self) -> int:
        return len(self._pids)

    def _restart(self, seen: dict[int, Task]) -> None:
        self._first = self._last = seen
        self._wakes = dict.fromkeys(seen, 0)
        self._times, self._began = 0, time.monotonic()

    def look(self) -> Look:
        family, before = descendants(self._root), self._family
        # With the dead, and what was waited for: a child may come and go between two looks, again and again.
        self._family = frozenset((process.pid, process.reaped) for process in family)
        seen = self._tasks(family)
        same = self._family == before and seen.keys() == self._first.keys()
        if not same or not all(map(self._unmoved, seen.values())):
            self._restart(seen)
        elif all(task.state in "ST" for task in seen.values()):
            self._times += 1
            for tid, task in seen.items():
                self._wakes[tid] += task.switches != self._last[tid].switches
            self._last = seen
        timers = tuple((task, self._wakes[tid]) for tid, task in seen.items() if _timed(self._first[tid]))
        main = self._first.get(self._main)
        seconds = time.monotonic() - self._began
        return Look(self._times, seconds, timers, main_waits=main is not None and not _timed(main))

    def _tasks(self, family: list[Process]) -> dict[int, Task]:
        living = [process for process in family if process.state not in "ZX"]
        self._pids.update(process.pid for process in family)
        every = (task for process in living for task in tasks(process.pid))
        return {task.tid: task for task in every if not (self._despite and task.name.startswith(self._despite))}

    def _unmoved(self, task: Task) -> bool:
        first = self._first[task.tid]
        if _timed(first):  # it may wake, but must go back to a call with a timeout
            return task.state in "RST" and (task.call is None or task.call.timed)
        return (
            task.state in "ST" and task.call is not None and (task.switches, task.call) == (first.switches, first.call)
        )


def _timed(task: Task) -> bool:
    return task.call is not None and task.call.timed


def _process(pid: int) -> Process | None:
    stat = _read(f"{PROC}/{pid}/stat")
    if not stat:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")  # the name may hold spaces and parentheses
    fields = rest.split()
    return Process(pid, int(fields[1]), int(fields[19]), state=fields[0], name=name, reaped=int(fields[8]))


def _task(pid: int, tid: int, alarmed: bool) -> Task | None:
    status = _read(f"{PROC}/{pid}/task/{tid}/status")
    if not status:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    switches = int(fields["voluntary_ctxt_switches"]) + int(fields["nonvoluntary_ctxt_switches"])
    call = _call(pid, tid)
    if call and alarmed:
        call = Call(call.name, timed=True)
    return Task(pid, tid, fields["Name"].strip(), fields["State"].split()[0], switches, call)


def _call(pid: int, tid: int) -> Call | None:
    words = (_read(f"{PROC}/{pid}/task/{tid}/syscall") or "").split()
    if len(words) < 7:  # "running", or asleep outside a call: "-1 SP PC"
        return None
    name = _NUMBERS.get(platform.machine(), {}).get(int(words[0]), f"system call {words[0]}")
    kind, _, position = _TIMEOUTS.get(name, "").partition(":")
    if kind == "null":
        return Call(name, timed=int(words[1 + int(position)], 16) != 0)
    if kind == "negative":  # an int is the lower half of its register
        return Call(name, timed=not int(words[1 + int(position)], 16) & 0x8000_0000)
    return Call(name, timed=kind == "always")


def _read(path: str) -> str | None:
    """The text of one file of /proc; None when it cannot be read, which for a process mostly means: it is gone."""
    try:
        with open(path, encoding="utf-8", errors="backslashreplace") as file:
            return file.read()
    except OSError:
        return None
