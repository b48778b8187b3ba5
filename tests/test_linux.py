"""The proof of a hang, against real programs: what is stuck must be found, and what only waits must be let alone.

A program that only waits ends by itself after two seconds, which are twenty looks, and not because somebody stops it:
so the machine may be as busy as it likes. One that hangs marks its line with `# here`, and the stacks must show it.
"""

from __future__ import annotations

import os
import platform
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "recipes"))

import linux
import supervisor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is about what Linux says")

AT_ONCE = 8  # programs, of which most only wait

# ----------------------------------------------------------------------------------------- programs that only wait


CHILD_SLEEPS = "[sys.executable, '-c', 'import time; time.sleep(2)']"
CHILD_BLOCKS = "[sys.executable, '-c', 'import os; r, w = os.pipe(); os.read(r, 1)']"
COMPUTES = "end = time.monotonic() + 2\nwhile time.monotonic() < end: pass"

WAITS = {
    "sleep": """
        import time
        time.sleep(2)
        """,
    "future.result(timeout=)": """
        import threading
        from concurrent.futures import ThreadPoolExecutor, TimeoutError
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            try:
                pool.submit(stop.wait).result(timeout=2)
            except TimeoutError:
                stop.set()
        """,
    "queue.get(timeout=)": """
        import queue
        try:
            queue.Queue().get(timeout=2)
        except queue.Empty:
            pass
        """,
    "a child that computes": f"""
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", {"import time;" + COMPUTES!r}]).wait()
        """,
    "a child that sleeps": f"""
        import subprocess, sys
        subprocess.Popen({CHILD_SLEEPS}).wait()
        """,
    "a grandchild that sleeps": f"""
        import os, subprocess, sys
        if os.fork() == 0:
            os._exit(subprocess.call({CHILD_SLEEPS}))
        os.wait()
        """,
    "a child that was stopped and is continued": """
        import os, signal, threading, time
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)
        os.waitpid(child, os.WUNTRACED)
        def continue_child():
            time.sleep(2)
            os.kill(child, signal.SIGCONT)
        threading.Thread(target=continue_child).start()
        os.waitpid(child, 0)
        """,
    "a child with a timeout": """
        import subprocess
        with subprocess.Popen(["sleep", "infinity"]) as child:
            try:
                child.wait(timeout=2)
            except subprocess.TimeoutExpired:
                child.kill()
        """,
    "a child's output with a timeout": """
        import subprocess
        try:
            subprocess.run(["sleep", "infinity"], stdout=subprocess.PIPE, timeout=2)
        except subprocess.TimeoutExpired:
            pass
        """,
    "a child below timeout(1)": """
        import subprocess
        assert subprocess.call(["timeout", "2", "sleep", "infinity"]) == 124
        """,
    "a line every 300 ms from a child": """
        import subprocess, sys
        lines = "import time\\nfor _ in range(8): time.sleep(0.3); print('line', flush=True)"
        child = subprocess.Popen([sys.executable, "-c", lines], stdout=subprocess.PIPE)
        assert len(list(child.stdout)) == 8
        child.wait()
        """,
    "a thread that sleeps": """
        import threading, time
        thread = threading.Thread(target=time.sleep, args=(2,))
        thread.start()
        thread.join()
        """,
    "a thread that computes": f"""
        import threading, time
        thread = threading.Thread(target=exec, args=({COMPUTES!r}, {{"time": time}}))
        thread.start()
        thread.join()
        """,
    "a server thread that polls while main computes": f"""
        import socket, threading, time
        server, stop = socket.create_server(("127.0.0.1", 0)), threading.Event()
        server.settimeout(0.05)
        def serve():
            while not stop.is_set():
                try:
                    server.accept()
                except socket.timeout:
                    pass
        thread = threading.Thread(target=serve)
        thread.start()
        {COMPUTES.splitlines()[0]}
        {COMPUTES.splitlines()[1]}
        stop.set()
        thread.join()
        """,
    "two threads that take turns": """
        import threading, time
        turns = [threading.Event(), threading.Event()]
        def play(mine, other):
            for _ in range(10):
                mine.wait()
                mine.clear()
                time.sleep(0.1)
                other.set()
        thread = threading.Thread(target=play, args=turns)
        thread.start()
        turns[0].set()
        play(turns[1], turns[0])
        thread.join()
        """,
    "asyncio with a timer": """
        import asyncio
        asyncio.run(asyncio.sleep(2))
        """,
    "select with a timeout": """
        import os, select
        read_end, write_end = os.pipe()
        assert select.select([read_end], [], [], 2) == ([], [], [])
        """,
    "poll with a timeout": """
        import os, select
        poll, (read_end, write_end) = select.poll(), os.pipe()
        poll.register(read_end, select.POLLIN)
        assert poll.poll(2000) == []
        """,
    "epoll with a timeout": """
        import os, select
        epoll, (read_end, write_end) = select.epoll(), os.pipe()
        epoll.register(read_end, select.EPOLLIN)
        assert epoll.poll(2) == []
        """,
    "a socket with a timeout": """
        import socket
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(2)
            try:
                server.accept()
            except socket.timeout:
                pass
        """,
    "sigtimedwait": """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        assert signal.sigtimedwait([signal.SIGUSR1], 2) is None
        """,
    "multiprocessing's join(timeout=)": """
        import multiprocessing, time
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(9,))
        child.start()
        child.join(timeout=2)
        child.kill()
        child.join()
        """,
    "a pool whose worker sleeps": """
        import time
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
            pool.submit(time.sleep, 2).result()
        """,
}

# As above, but only where no hang was declared: there a thread that polls is life, and not a library's housekeeping.
WAITS_FOR_POLLERS = {
    "a child that polls": """
        import subprocess, sys
        polls = "import time\\nfor _ in range(40): time.sleep(0.05)"
        subprocess.check_call([sys.executable, "-c", polls])
        """,
    "a thread that polls": """
        import threading, time
        def poll():
            for _ in range(40):
                time.sleep(0.05)
        thread = threading.Thread(target=poll)
        thread.start()
        thread.join()
        """,
}

# ---------------------------------------------------------------------------------------------- programs that hang

HANGS = {
    "a full pipe": """
        import os
        read_end, write_end = os.pipe()
        os.write(write_end, bytes(1_000_000))  # here
        """,
    "a pipe of which nobody writes the other end": """
        import os
        read_end, write_end = os.pipe()
        os.read(read_end, 1)  # here
        """,
    "a child's output that nobody reads": """
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "print('x' * 1_000_000)"], stdout=subprocess.PIPE)
        child.wait()  # here
        """,
    "two locks in opposite order": """
        import threading
        first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
        def take(mine, other):
            with mine:
                both.wait()
                other.acquire()  # here
        threading.Thread(target=take, args=(second, first), daemon=True).start()
        take(first, second)
        """,
    "queue.get()": """
        import queue
        queue.Queue().get()  # here
        """,
    "a thread at exit": """
        import threading
        def wait():
            threading.Event().wait()  # here
        threading.Thread(target=wait).start()
        """,
    "a future that waits for its own pool": """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(1)
        def outer():
            return pool.submit(int).result()  # here
        pool.submit(outer).result()
        """,
    "wait for a child that reads": f"""
        import subprocess, sys
        subprocess.Popen({CHILD_BLOCKS}).wait()  # here
        """,
    "waitid for a child that pauses": """
        import os, subprocess
        child = subprocess.Popen(["sleep", "infinity"])
        os.waitid(os.P_PID, child.pid, os.WEXITED)  # here
        """,
    "wait for a child that was stopped": """
        import os, signal
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        os.waitpid(child, 0)  # here
        """,
    "a grandchild that holds the pipe": """
        import subprocess
        child = subprocess.Popen(["sh", "-c", "sleep infinity & exit"], stdout=subprocess.PIPE)
        child.communicate()  # here
        """,
    "flock against a child": """
        import fcntl, os, tempfile
        with tempfile.NamedTemporaryFile() as file:
            ready, taken = os.pipe()
            if os.fork() == 0:
                with open(file.name) as mine:
                    fcntl.flock(mine, fcntl.LOCK_EX)
                    os.write(taken, b"!")
                    os.read(os.pipe()[0], 1)
            os.read(ready, 1)
            fcntl.flock(file, fcntl.LOCK_EX)  # here
        """,
    "lockf against a child": """
        import fcntl, os, tempfile
        with tempfile.TemporaryFile() as file:
            ready, taken = os.pipe()
            if os.fork() == 0:
                fcntl.lockf(file, fcntl.LOCK_EX)
                os.write(taken, b"!")
                (read_end, write_end) = os.pipe()
                os.read(read_end, 1)
            os.read(ready, 1)
            fcntl.lockf(file, fcntl.LOCK_EX)  # here
        """,
    "open of a FIFO": """
        import os, tempfile
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(folder + "/fifo")
            open(folder + "/fifo")  # here
        """,
    "accept": """
        import socket
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.accept()  # here
        """,
    "recv": """
        import socket
        mine, other = socket.socketpair()
        mine.recv(1)  # here
        """,
    "sendall": """
        import socket
        mine, other = socket.socketpair()
        mine.sendall(bytes(10_000_000))  # here
        """,
    "select without a timeout": """
        import os, select
        read_end, write_end = os.pipe()
        select.select([read_end], [], [])  # here
        """,
    "poll without a timeout": """
        import os, select
        poll, (read_end, write_end) = select.poll(), os.pipe()
        poll.register(read_end, select.POLLIN)
        poll.poll()  # here
        """,
    "asyncio without a timer": """
        import asyncio
        loop = asyncio.new_event_loop()
        loop.run_until_complete(loop.create_future())  # here
        """,
    "sigwait": """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        signal.sigwait([signal.SIGUSR1])  # here
        """,
    "pause": """
        import signal
        signal.pause()  # here
        """,
    "a lock that another thread held at fork": """
        import os, threading, warnings
        warnings.simplefilter("ignore")
        lock, held = threading.Lock(), threading.Event()
        def hold():
            with lock:
                held.set()
                threading.Event().wait()
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        if os.fork() == 0:
            lock.acquire()
        os.wait()  # here
        """,
    "multiprocessing's Queue.get() in a child that was forked": """
        import multiprocessing
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=queue.get)
        child.start()
        child.join()  # here
        """,
    "multiprocessing's Queue.get() in a child that was spawned": """
        import multiprocessing
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            child = context.Process(target=queue.get)
            child.start()
            child.join()  # here
        """,
    "a lock of multiprocessing's, taken twice": """
        import multiprocessing
        lock = multiprocessing.Lock()
        lock.acquire()
        lock.acquire()  # here
        """,
    "a pool whose worker blocks": """
        import os
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        read_end, write_end = os.pipe()
        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
            pool.submit(os.read, read_end, 1).result()  # here
        """,
}

# As above, but proven only where a hang was declared. They say how old they are when they begin to hang, since a busy
# machine takes its time until then.
AGE = """import os, time
        start = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        print(time.clock_gettime(time.CLOCK_BOOTTIME) - start, flush=True)"""
HANGS_BESIDE_POLLERS = {
    "a Manager": f"""
        import multiprocessing, threading
        manager = multiprocessing.get_context("fork").Manager()
        {AGE}
        threading.Event().wait()  # here
        """,
    "a thread that polls every 50 ms": f"""
        import threading, time
        def poll():
            while True:
                time.sleep(0.05)
        threading.Thread(target=poll, daemon=True).start()
        {AGE}
        threading.Event().wait()  # here
        """,
    "a child that polls every 50 ms": f"""
        import subprocess, sys
        {AGE}
        subprocess.call([sys.executable, "-c", "import time\\nwhile True: time.sleep(0.05)"])  # here
        """,
}

# A timer may end the wait, or not: nobody can tell. So it is no proof, and the pid and the call are said, as often as
# there are such timers.
TIMERS = {
    "main sleeps": (1, "import time; time.sleep(60)"),
    "main waits for a result with a timeout": (
        1,
        """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        ThreadPoolExecutor(1).submit(threading.Event().wait).result(timeout=40)
        """,
    ),
    "main polls": (
        1,
        """
        import time
        while True:
            time.sleep(0.05)
        """,
    ),
    "a child is below timeout(1)": (1, "import subprocess; subprocess.call(['timeout', '60', 'sleep', 'infinity'])"),
    "a child sleeps beside a thread that polls": (
        1,
        """
        import subprocess, threading, time
        def poll():
            while True:
                time.sleep(0.05)
        threading.Thread(target=poll, daemon=True).start()
        subprocess.call(["sleep", "60"])
        """,
    ),
    "a thread and a child sleep": (
        2,
        """
        import subprocess, threading, time
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        subprocess.call(["sleep", "60"])
        """,
    ),
}

# A library's thread sleeps for ever beside a hang. The system knows it by the name that Python gives it only from 3.14
# on; up to 3.13 it must say its name itself.
NAMED_BY_ITSELF = """
    import ctypes, threading, time
    named = threading.Event()
    def keep_house():
        assert ctypes.CDLL(None).prctl(15, b"housekeeping", 0, 0, 0) == 0
        named.set()
        time.sleep(60)
    threading.Thread(target=keep_house, daemon=True).start()
    named.wait()
    threading.Event().wait()  # here
    """
NAMED_BY_PYTHON = """
    import threading, time
    threading.Thread(target=time.sleep, args=(60,), name="housekeeping", daemon=True).start()
    threading.Event().wait()  # here
    """
DESPITE = {
    "a thread that names itself": NAMED_BY_ITSELF,
    **({"a thread that Python names": NAMED_BY_PYTHON} if sys.version_info >= (3, 14) else {}),
}


def run_of(text: str, hang: bool, despite: tuple[str, ...] = ()) -> supervisor.Run:
    files = (("program.py", textwrap.dedent(text).lstrip("\n")),)
    return supervisor.Run(
        (sys.executable, "-X", "faulthandler"), bound=60, files=files, watch=True, hang=hang, despite=despite
    )


RUNS = {
    **{name: run_of(text, hang=True) for name, text in HANGS_BESIDE_POLLERS.items()},
    **{name: run_of(text, hang=True) for name, (_, text) in TIMERS.items()},
    **{name: run_of(text, hang=False, despite=("nobody", "housekeep")) for name, text in DESPITE.items()},
    **{name: run_of(text, hang=False) for name, text in HANGS.items()},
    **{name: run_of(text, hang=False) for name, text in WAITS_FOR_POLLERS.items()},
    **{name: run_of(text, hang=True) for name, text in WAITS.items()},
}


def run_all(names: Iterable[str]) -> dict[str, supervisor.Observed]:
    """These programs, some at once: most of what they do is wait."""
    waiting, running, observed = deque(names), dict[str, supervisor.Supervised](), dict[str, supervisor.Observed]()
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                name = waiting.popleft()
                running[name] = supervisor.start(RUNS[name])
            ready, _, _ = select.select([run.result for run in running.values()], [], [])
            for name in [name for name, run in running.items() if run.result in ready]:
                observed[name] = supervisor.finish(running.pop(name))
    finally:
        supervisor.abandon(running.values())
    return observed


@pytest.fixture(scope="module")
def observed(request: pytest.FixtureRequest) -> dict[str, supervisor.Observed]:
    """What came of the programs whose tests were chosen."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    chosen = {item.callspec.params.get("name") for item in items if item.module is request.module}
    seen = run_all(name for name in RUNS if name in chosen)
    assert linux.descendants(os.getpid()) == []
    return seen


Runs = Mapping[str, supervisor.Observed]


def assert_hang(name: str, seen: supervisor.Observed) -> None:
    """It was proven, and the innermost line of the program, in some thread, is the marked one."""
    assert (seen.stopped, seen.detail, seen.status) == ("hang", "", None), seen
    said, _, stacks = seen.output.partition(supervisor.DUMP)
    assert "Error" not in said, said
    threads = re.split(r"^(?=(?:Current thread|Thread) 0x)", stacks, flags=re.MULTILINE)
    found = [re.search(r'^  File ".*/program\.py", line (\d+) in ', thread, re.MULTILINE) for thread in threads]
    lines = RUNS[name].files[0][1].splitlines()
    assert any(lines[int(match[1]) - 1].endswith("# here") for match in found if match), seen.output


@pytest.mark.parametrize("name", [*WAITS, *WAITS_FOR_POLLERS])
def test_wait_ends_by_itself(name: str, observed: Runs) -> None:
    seen = observed[name]
    assert (seen.stopped, seen.status, seen.output, seen.processes) == ("", 0, "", ()), seen
    assert seen.seconds >= 1.9, "it did not wait"


@pytest.mark.parametrize("name", HANGS)
def test_hang_is_proven_though_none_was_declared(name: str, observed: Runs) -> None:
    assert_hang(name, observed[name])


@pytest.mark.parametrize("name", HANGS_BESIDE_POLLERS)
def test_hang_beside_a_poller_is_proven_in_time(name: str, observed: Runs) -> None:
    assert_hang(name, observed[name])
    age = float(observed[name].output.partition("\n")[0])
    assert observed[name].seconds - age < 4


@pytest.mark.parametrize("name", TIMERS)
def test_timer_is_no_proof(name: str, observed: Runs) -> None:
    seen, (number, _) = observed[name], TIMERS[name]
    assert seen.stopped == "timer", seen
    tasks = seen.detail.split(", ")
    assert len(tasks) == number
    calls = "clock_nanosleep|select|pselect6|futex|rt_sigsuspend"  # time.sleep() is a select up to Python 3.10
    assert all(re.fullmatch(rf"pid \d+ \(.+ in (?:{calls})\)", task) for task in tasks), seen.detail
    assert seen.seconds >= 4


@pytest.mark.parametrize("name", DESPITE)
def test_named_thread_is_not_looked_at(name: str, observed: Runs) -> None:
    assert_hang(name, observed[name])


def test_every_program_has_a_name_of_its_own() -> None:
    kinds = (WAITS, WAITS_FOR_POLLERS, HANGS, HANGS_BESIDE_POLLERS, TIMERS, DESPITE)
    assert len(RUNS) == sum(len(kind) for kind in kinds)


# --------------------------------------------------------------------------------------------------- what is alive


class Partner:
    """A child that sleeps in read() and answers each byte, so that it moves when it is told to and at no other time."""

    def __init__(self, before: str = "") -> None:
        text = f"import os\n{textwrap.dedent(before)}\nwhile os.read(0, 1): os.write(1, b'!')\n"
        self._child = subprocess.Popen(
            [sys.executable, "-c", text, "an argument", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.pid = self._child.pid

    def move(self) -> None:
        """Wakes it, and waits until it sleeps again."""
        assert self._child.stdin and self._child.stdout
        self._child.stdin.write(b"?")
        assert self._child.stdout.read(1) == b"!"
        wait_until(lambda: any(task.tid == self.pid and asleep(task, "read") for task in linux.tasks(self.pid)))

    def end(self) -> int:
        assert self._child.stdin and self._child.stdout
        self._child.stdin.close()
        self._child.stdout.close()
        return self._child.wait()

    def kill(self) -> None:
        self._child.kill()
        self.end()


def asleep(task: linux.Task, call: str) -> bool:
    return task.state == "S" and task.call is not None and task.call.name == call


def wait_until(done: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not done():
        assert time.monotonic() < give_up
        time.sleep(0.001)


@pytest.fixture
def start() -> Iterator[Callable[..., Partner]]:
    started: list[Partner] = []

    def start_one(before: str = "") -> Partner:
        started.append(Partner(before))
        started[-1].move()  # it has begun
        return started[-1]

    yield start_one
    for partner in started:
        partner.kill()


Start = Callable[..., Partner]


def times(watch: linux.Watch, number: int) -> list[int]:
    return [watch.look().times for _ in range(number)]


def test_three_looks_at_what_does_not_move_are_needed(start: Start) -> None:
    watch = linux.Watch(os.getpid(), start().pid)
    looks = [watch.look() for _ in range(4)]
    assert [look.times for look in looks] == [0, 1, 2, 3]
    assert [look.at_rest for look in looks] == [False, False, False, True]
    assert [look.at_rest_beside_pollers for look in looks] == [False, False, False, True]
    assert all(look.main_waits and not look.timers for look in looks)
    seconds = [look.seconds for look in looks]
    assert seconds == sorted(set(seconds))


def test_task_that_wakes_begins_the_count_anew(start: Start) -> None:
    partner = start()
    watch = linux.Watch(os.getpid(), partner.pid)
    assert times(watch, 4) == [0, 1, 2, 3]
    partner.move()
    assert times(watch, 4) == [0, 1, 2, 3]


def test_process_that_comes_or_goes_begins_the_count_anew(start: Start) -> None:
    first = start()
    watch = linux.Watch(os.getpid(), first.pid)
    assert (times(watch, 4), watch.processes) == ([0, 1, 2, 3], 1)
    second = start()
    assert (times(watch, 4), watch.processes) == ([0, 1, 2, 3], 2)
    assert second.end() == 0
    assert (times(watch, 4), watch.processes) == ([0, 1, 2, 3], 2)


def test_main_that_is_not_there_is_no_hang(start: Start) -> None:
    watch = linux.Watch(os.getpid(), main=start().pid + 1)
    looks = [watch.look() for _ in range(4)]
    assert (looks[3].times, looks[3].main_waits) == (3, False)
    assert not looks[3].at_rest and not looks[3].at_rest_beside_pollers


def test_wakes_of_a_poller_are_counted(start: Start) -> None:
    partner = start(
        """
        import threading, time
        def poll():
            while True:
                time.sleep(0.01)
        threading.Thread(target=poll, daemon=True).start()
        """
    )
    watch = linux.Watch(os.getpid(), partner.pid)
    looks: list[linux.Look] = []
    while not looks or not looks[-1].at_rest_beside_pollers:
        looks.append(watch.look())
        time.sleep(0.02)
        assert len(looks) < 1000
    assert not any(look.at_rest for look in looks)
    assert looks[-1].main_waits
    assert [wakes for _, wakes in looks[-1].timers] == [3]


# ------------------------------------------------------------------- what no real program does when one wants it to


class Machine:
    """A /proc of our own making, for states in which no program can be held, such as sleep that cannot be disturbed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def task(
        self,
        pid: int,
        tid: int = 0,
        *,
        parent: int = 1,
        state: str = "S",
        switches: int = 0,
        call: str = "",
        name: str = "x",
        reaped: int = 0,
        timers: str = "",
    ) -> None:
        tid = tid or pid
        folder = self._folder / str(pid) / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        status = f"Name:\t{name}\nState:\t{state} (so)\nvoluntary_ctxt_switches:\t{switches}\n"
        (folder / "status").write_text(f"{status}nonvoluntary_ctxt_switches:\t0\n")
        (folder / "syscall").write_text(call or READ)
        if tid == pid:
            fields = [state, parent, *[0] * 6, reaped, *[0] * 10, 7, 0, 0]
            (self._folder / str(pid) / "stat").write_text(f"{pid} (x) {' '.join(map(str, fields))}\n")
            (self._folder / str(pid) / "timers").write_text(timers)


def syscall(number: int, **arguments: int) -> str:
    """What /proc says of a task in this call: its arguments are 0, except those given, such as `_2=1`."""
    values = [arguments.get(f"_{place}", 0) for place in range(6)]
    return " ".join([str(number), *map(hex, [*values, 0x7FFC_0000, 0x7F00_0000])]) + "\n"


READ, SLEEP, FUTEX = syscall(0), syscall(230), syscall(202)
FUTEX_TIMED = syscall(202, _3=0x7FFC_1000)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(linux, "PROC", str(tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return Machine(tmp_path)


def test_task_of_a_machine_of_our_own(machine: Machine) -> None:
    machine.task(20, state="D", switches=3, call=FUTEX_TIMED, name="a name")
    assert linux.tasks(20) == [linux.Task(20, 20, "a name", "D", 3, linux.Call("futex", True))]
    assert linux.processes() == {20: linux.Process(20, parent=1, start=7, state="D", name="x")}


@pytest.mark.parametrize("state", ["R", "D", "t", "I"])
def test_other_states_than_sleep_and_stop_are_life(machine: Machine, state: str) -> None:
    machine.task(20)
    machine.task(20, 21, state=state)
    watch = linux.Watch(1, main=20)
    assert times(watch, 5) == [0, 0, 0, 0, 0]


def test_stopped_task_is_at_rest(machine: Machine) -> None:
    machine.task(20)
    machine.task(21, parent=20, state="T")
    watch = linux.Watch(1, main=20)
    assert [watch.look().at_rest for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize("state", "ZX")
def test_what_has_ended_may_have_any_call(machine: Machine, state: str) -> None:
    machine.task(20)
    machine.task(21, parent=20, state=state, call="0")
    watch = linux.Watch(1, main=20)
    assert [watch.look().at_rest for _ in range(4)] == [False, False, False, True]
    assert watch.processes == 2


def test_child_that_came_and_went_between_two_looks_begins_the_count_anew(machine: Machine) -> None:
    machine.task(20)
    machine.task(21, parent=20, state="Z")
    watch = linux.Watch(1, main=20)
    assert times(watch, 4) == [0, 1, 2, 3]
    machine.task(20, reaped=1)  # another child, which it has waited for
    assert times(watch, 4) == [0, 1, 2, 3]
    machine.task(22, parent=20, state="Z")  # another one, for which it has not
    assert times(watch, 4) == [0, 1, 2, 3]
    assert watch.processes == 3


@pytest.mark.parametrize(
    "moved",
    [
        {"state": "R"},
        {"state": "D"},
        {"switches": 1},
        {"call": FUTEX},
        {"call": SLEEP},
        {"call": "running\n"},
        {"call": "-1 0x7ffc 0x7f00\n"},
        {"call": "\n"},
    ],
    ids=[
        "awake",
        "in sleep that cannot be disturbed",
        "switched",
        "another call",
        "a timed call",
        "running",
        "in no call",
        "nothing said",
    ],
)
def test_any_task_that_moves_begins_the_count_anew(machine: Machine, moved: dict[str, Any]) -> None:
    machine.task(20)
    machine.task(20, 21)
    watch = linux.Watch(1, main=20)
    assert times(watch, 4) == [0, 1, 2, 3]
    machine.task(20, 21, **moved)
    assert times(watch, 1) == [0]


@pytest.mark.parametrize("call", ["running\n", "-1 0x7ffc 0x7f00\n", "\n"])
def test_task_of_which_the_kernel_does_not_say_its_call_is_never_at_rest(machine: Machine, call: str) -> None:
    machine.task(20)
    machine.task(20, 21, call=call)
    assert times(linux.Watch(1, main=20), 5) == [0, 0, 0, 0, 0]


def test_poller_may_be_seen_awake_but_that_is_no_look(machine: Machine) -> None:
    machine.task(20)
    machine.task(20, 21, call=SLEEP)
    watch, seen = linux.Watch(1, main=20), []
    for switches, state, call in [
        (0, "S", SLEEP),
        (1, "S", SLEEP),
        (2, "R", "running\n"),
        (2, "S", FUTEX_TIMED),
        (3, "S", SLEEP),
    ]:
        machine.task(20, 21, state=state, switches=switches, call=call)
        look = watch.look()
        seen.append((look.times, [wakes for _, wakes in look.timers], look.at_rest_beside_pollers))
    assert seen == [(0, [0], False), (1, [1], False), (1, [1], False), (2, [2], False), (3, [3], True)]


def test_poller_that_begins_to_wait_for_something_else_begins_the_count_anew(machine: Machine) -> None:
    machine.task(20)
    machine.task(20, 21, call=SLEEP)
    watch = linux.Watch(1, main=20)
    assert times(watch, 3) == [0, 1, 2]
    machine.task(20, 21, call=READ)
    assert times(watch, 4) == [0, 1, 2, 3]
    assert watch.look().at_rest


def test_main_that_polls_is_no_hang(machine: Machine) -> None:
    watch, looks = linux.Watch(1, main=20), []
    for switches in range(6):
        machine.task(20, call=SLEEP, switches=switches)
        looks.append(watch.look())
    assert looks[-1].timers[0][1] == 5
    assert not any(look.main_waits or look.at_rest_beside_pollers for look in looks)


def test_despite_leaves_out_what_begins_so(machine: Machine) -> None:
    machine.task(20, name="python3")
    machine.task(20, 21, call=SLEEP, name="keeper-1")
    machine.task(21, 22, call=SLEEP, name="not-keeper")

    def at_rest(*despite: str) -> bool:
        watch = linux.Watch(1, main=20, despite=despite)
        return [watch.look().at_rest for _ in range(4)][-1]

    assert not at_rest()
    assert at_rest("keeper")
    assert at_rest("nobody", "keeper-1")
    assert not at_rest("eeper")
    assert not at_rest("keeper-11")
    assert not at_rest("keeper", "python")  # main is left out, too: nothing is known of it


@pytest.mark.parametrize(
    ("machine_name", "text", "expected"),
    [
        ("x86_64", syscall(0), ("read", False)),
        ("x86_64", syscall(7, _2=0xFFFF_FFFF), ("poll", False)),
        ("x86_64", syscall(7, _2=0xFFFF_FFFF_FFFF_FFFF), ("poll", False)),
        ("x86_64", syscall(7, _2=0xFFFF_FFFF_0000_07D0), ("poll", True)),
        ("x86_64", syscall(7, _2=0), ("poll", True)),
        ("x86_64", syscall(23, _4=0), ("select", False)),
        ("x86_64", syscall(23, _4=1), ("select", True)),
        ("x86_64", syscall(128), ("rt_sigtimedwait", False)),
        ("x86_64", syscall(128, _2=1), ("rt_sigtimedwait", True)),
        ("x86_64", syscall(202, _2=1), ("futex", False)),
        ("x86_64", syscall(202, _3=1), ("futex", True)),
        ("x86_64", syscall(219), ("restart_syscall", True)),
        ("x86_64", syscall(220, _3=1), ("semtimedop", True)),
        ("x86_64", syscall(230), ("clock_nanosleep", True)),
        ("x86_64", syscall(232, _3=0xFFFF_FFFF), ("epoll_wait", False)),
        ("x86_64", syscall(232, _3=50), ("epoll_wait", True)),
        ("x86_64", syscall(271, _2=1), ("ppoll", True)),
        ("x86_64", syscall(426), ("io_uring_enter", True)),
        ("x86_64", syscall(9999, _0=1, _1=1, _2=1, _3=1, _4=1, _5=1), ("system call 9999", False)),
        ("aarch64", syscall(63), ("read", False)),
        ("aarch64", syscall(98, _3=1), ("futex", True)),
        ("aarch64", syscall(115), ("clock_nanosleep", True)),
        ("aarch64", syscall(22, _3=0xFFFF_FFFF), ("epoll_pwait", False)),
        ("aarch64", syscall(0), ("system call 0", False)),
    ],
)
def test_timeout_is_where_the_call_has_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, machine_name: str, text: str, expected: tuple[str, bool]
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine_name)
    machine.task(20, call=text)
    assert [task.call for task in linux.tasks(20)] == [expected]


def test_process_with_a_timer_of_its_own_waits_for_it(machine: Machine) -> None:
    """As timeout(1) does, in a call without a timeout: the timer's signal will end the call."""
    machine.task(20)
    machine.task(21, parent=20, timers="ID: 0\nsignal: 14/0000000000000000\nnotify: signal/pid.21\nClockID: 0\n")
    machine.task(21, 22, call=FUTEX)
    assert [task.call for task in linux.tasks(20)] == [("read", False)]
    assert sorted(task.call or () for task in linux.tasks(21)) == [("futex", True), ("read", True)]
    watch = linux.Watch(1, main=20)
    looks = [watch.look() for _ in range(5)]
    assert [len(look.timers) for look in looks] == [2] * 5
    assert not any(look.at_rest or look.at_rest_beside_pollers for look in looks)


# ------------------------------------------------------------------------------------------------------ real trees


def test_name_with_spaces_and_parentheses(start: Start) -> None:
    partner = start("open('/proc/self/comm', 'w').write('a) R 1 (b (c')")
    process = linux.processes()[partner.pid]
    assert process == linux.Process(partner.pid, os.getpid(), process.start, "S", "a) R 1 (b (c")
    boot = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
    assert 0 <= boot - process.start < 60 * os.sysconf("SC_CLK_TCK")
    assert [task.name for task in linux.tasks(partner.pid)] == ["a) R 1 (b (c"]
    assert linux.descendants(os.getpid()) == [process]


def test_descendants_come_after_their_parents(start: Start) -> None:
    partner = start("both = [os.fork() for _ in range(2)]")  # so that there are four
    wait_until(lambda: len(linux.descendants(os.getpid())) == 4)
    tree = linux.descendants(os.getpid())
    assert tree[0].pid == partner.pid
    pids = [process.pid for process in tree]
    parents = [process.parent for process in tree]
    assert sorted(map(parents.count, pids)) == [0, 0, 1, 2]
    assert all(parent in [os.getpid(), *pids[:place]] for place, parent in enumerate(parents))
    assert [process.parent for process in linux.descendants(partner.pid)] == parents[1:]
    assert linux.descendants(tree[-1].pid) == []


def test_tasks_and_command_of_what_lives_and_of_what_is_gone(start: Start) -> None:
    partner = start("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()")
    wait_until(lambda: sum(asleep(task, "futex") for task in linux.tasks(partner.pid)) == 1)
    tasks = sorted(linux.tasks(partner.pid), key=lambda task: task.tid != partner.pid)
    assert [(task.pid, task.state, task.call) for task in tasks] == [
        (partner.pid, "S", ("read", False)),
        (partner.pid, "S", ("futex", False)),
    ]
    assert re.fullmatch(rf"pid {partner.pid} \(python\S* in read\)", str(tasks[0]))
    assert linux.command(partner.pid).startswith(f"{sys.executable} -c import os\n")
    assert linux.command(partner.pid).endswith("\n an argument")
    partner.kill()
    assert (linux.tasks(partner.pid), linux.command(partner.pid)) == ([], "")
    assert partner.pid not in linux.processes()


def test_zombie_has_no_command() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    zombie = linux.processes()[child.pid]
    assert (zombie.state, linux.command(child.pid)) == ("Z", "")
    assert child.wait() == 0


def test_signal_is_sent_to_the_process_that_is_meant(start: Start) -> None:
    partner = start()
    assert linux.send(linux.processes()[partner.pid], signal.SIGTERM) is True
    assert partner.end() == -signal.SIGTERM


@pytest.mark.parametrize("ticks", [-1, 1])
def test_signal_is_not_sent_to_who_has_the_number_now(start: Start, ticks: int) -> None:
    partner = start()
    meant = linux.processes()[partner.pid]
    earlier = meant._replace(start=meant.start + ticks)
    assert linux.send(earlier, signal.SIGKILL) is False
    partner.move()
    assert partner.end() == 0


def test_signal_is_not_sent_to_who_is_gone(start: Start) -> None:
    partner = start()
    process = linux.processes()[partner.pid]
    assert partner.end() == 0
    assert linux.send(process, signal.SIGKILL) is False


def test_this_machine_tells() -> None:
    assert linux.tells() is True


@pytest.mark.parametrize("missing", ["stat", "status", "syscall"])
def test_machine_that_says_less_does_not_tell(machine: Machine, tmp_path: Path, missing: str) -> None:
    assert not linux.tells()
    machine.task(os.getpid())
    (tmp_path / "self").symlink_to(str(os.getpid()))
    (tmp_path / "self/task" / str(os.getpid()) / "stat").touch()
    assert linux.tells()
    (tmp_path / "self/task" / str(os.getpid()) / missing).unlink()
    assert not linux.tells()


def test_proc_of_another_namespace_is_not_taken_for_ours(machine: Machine, tmp_path: Path) -> None:
    machine.task(os.getpid())
    (tmp_path / "self").symlink_to(str(os.getpid() + 1))
    assert not linux.sees()
    (tmp_path / "self").unlink()
    (tmp_path / "self").symlink_to(str(os.getpid()))
    assert linux.sees()


def test_other_systems_and_processors_do_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(platform, "machine", lambda: "riscv64")
        assert not linux.tells()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        assert not linux.tells()


def test_nothing_is_seen_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(linux, "PROC", str(tmp_path / "none"))
    assert (linux.sees(), linux.tells(), linux.tasks(os.getpid()), linux.command(os.getpid())) == (False, False, [], "")
