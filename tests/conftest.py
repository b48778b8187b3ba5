"""What the tests share: a place where the verifier runs, and what it left there."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from rules import MODULES  # noqa: E402

VERIFIER = ROOT / "scripts" / "verify-recipes.py"
SHARED_MEMORY = Path("/dev/shm")
BOUND = 240  # seconds for one run of the verifier, whatever the recipe does


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=1, help="how often tests/test_run_tree.py runs each adversary (1)")


class Ground:
    """A folder with recipes and a temporary directory, and a mark that every process started there inherits.

    The folder's name has a space, and is short: the supervisor takes a temporary directory with a long path for
    unusable and would use another, where nobody looks.
    """

    def __init__(self, folder: Path) -> None:
        self.mark = f"HANGPROOF_TEST_MARK={uuid.uuid4()}"
        self.recipes, self.temporary, self.log = folder / "recipes", folder / "t", folder / "log"
        for path in (self.recipes, self.temporary):
            path.mkdir()
        for path in (ROOT / "recipes").glob("*.py"):
            if path.stem in MODULES:
                shutil.copy(path, self.recipes)
        self._segments = segments()

    @property
    def environment(self) -> dict[str, str]:
        """Ours, without what changes how Python behaves (PYTHONDONTWRITEBYTECODE would hide bytecode that is left), and
        without our PATH: if a directory in it cannot be read, what is not found is "permission denied"."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        name, _, value = self.mark.partition("=")
        return {**inherited, name: value, "TMPDIR": str(self.temporary), "PATH": os.defpath}

    def remains(self, grace: float = 5.0) -> list[str]:
        """What is left: processes, files, shared memory. The latter is the whole machine's, so that which is new
        gets a grace to vanish: it may be another program's."""
        files = [path for path in self.temporary.rglob("*") if not path.is_dir()]
        beside = [path for path in self.recipes.iterdir() if path.suffix != ".py"]
        new, give_up = segments() - self._segments, time.monotonic() + grace
        while new & segments() and time.monotonic() < give_up:
            time.sleep(0.05)
        processes = [f"process {pid}: {command(pid)}" for pid in self._marked()]
        return processes + [f"file {path.name}" for path in files + beside] + sorted(new & segments())

    def clear(self) -> None:
        """Ends what is left, so that a test that fails harms no other."""
        while self._marked():
            for pid in self._marked():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _marked(self) -> list[int]:
        """The processes with our mark. A zombie has no environment any more, so it is not among them."""
        pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
        return [pid for pid in pids if self.mark.encode() in read(f"/proc/{pid}/environ").split(b"\0")]


def segments() -> set[str]:
    return {f"shared memory {path.name}" for path in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def command(pid: int) -> str:
    return read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "backslashreplace")[:200]


def read(path: str) -> bytes:
    """One file of /proc; empty when the process is gone, or not ours."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


@contextlib.contextmanager
def new_ground() -> Iterator[Ground]:
    with tempfile.TemporaryDirectory(prefix="hp ") as folder:
        ground = Ground(Path(folder))
        try:
            yield ground
        finally:
            ground.clear()


class Verified(NamedTuple):
    """One run of the verifier on one recipe. `status` is None when it had to be killed."""

    status: int | None
    output: str
    remains: list[str]


def verify_recipe(recipe: Path, timeout: float = 20) -> Verified:
    """Runs the real verifier on a copy of `recipe`. Its output goes to a file, which nothing that is left can block."""
    with new_ground() as ground:
        copy = shutil.copy(recipe, ground.recipes)
        options = ["--recipes", str(ground.recipes), "--timeout", f"{timeout}"]
        argv = [sys.executable, str(VERIFIER), *options, Path(copy).stem]
        with open(ground.log, "wb") as log:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ground.environment, cwd=ground.temporary
            )
            with child:
                try:
                    status = child.wait(BOUND)
                except subprocess.TimeoutExpired:
                    child.kill()
                    status = None
        return Verified(status, ground.log.read_text("utf-8", "backslashreplace"), ground.remains())


@pytest.fixture(scope="session")
def verify() -> Callable[..., Verified]:
    return verify_recipe


@pytest.fixture(scope="session")
def verified() -> type[Verified]:
    return Verified


@pytest.fixture
def ground() -> Iterator[Ground]:
    with new_ground() as fresh:
        yield fresh
