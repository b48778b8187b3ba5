#!/usr/bin/env python3
"""Prove the recipes on this Python, or on others: one line per rule.

    verify-recipes.py                     every rule
    verify-recipes.py sp thread-own       a chapter, and all rules whose id begins so
    verify-recipes.py --python 3.9 --python 3.15 --verbose

It needs nothing but Python. Each recipe runs as its reader would run it, several at once, from a copy and under a
supervisor, so that nothing which a recipe does stays behind. Nothing is taken on trust: what a recipe declares is read
from its source, and a recipe that reports less than it declares fails, as does a run that proves no rule at all.

Exit status: 0 every rule holds, 1 one does not, 2 wrong use, 130 interrupted. SIGTERM, SIGHUP and a closed standard
output end it by that signal, after it has cleaned up.
"""

from __future__ import annotations

import os
import sys

# A PYTHONPATH is for its owner's programs: a json.py in it is not for us, so it goes before anything else is imported.
_foreign = {os.path.abspath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder}
sys.path = [folder for folder in sys.path if os.path.abspath(folder) not in _foreign]

import argparse
import difflib
import json
import re
import selectors
import shlex
import shutil
import subprocess
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.dont_write_bytecode = True  # an installed skill stays as it was installed
RECIPES = Path(__file__).resolve().parent.parent / "recipes"
sys.path[:0] = [str(RECIPES), str(Path(__file__).resolve().parent)]

import console
import quoting
import rules
import supervisor

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

NAME = "verify-recipes.py"
CLAIMED = tuple((3, minor) for minor in range(9, 16))  # the versions that the pack claims
NEW_IN_STDLIB = ("annotationlib", "compression", "concurrent", "profiling", "tomllib", "zoneinfo")

# --------------------------------------------------------------------------------------------------- interpreters


class Interpreter(NamedTuple):
    """A Python to prove the rules on, as it describes itself."""

    path: str
    implementation: str
    version: tuple[int, int, int]
    platform: str
    free_threaded: bool
    stdlib: frozenset[str]

    def __str__(self) -> str:
        names = {"cpython": "CPython", "pypy": "PyPy"}
        return f"{names.get(self.implementation, self.implementation)} {self.short}"

    @property
    def short(self) -> str:
        return ".".join(map(str, self.version)) + ("t" if self.free_threaded else "")


DESCRIBE = """\
import json, sys, sysconfig
print(json.dumps([sys.executable, sys.implementation.name, sys.version_info[:3], sys.platform,
      bool(sysconfig.get_config_var("Py_GIL_DISABLED")), sorted(getattr(sys, "stdlib_module_names", ()))]))
"""

INSTALLED = """\
import json, sys
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


def ask(python: str, program: str, *arguments: str) -> Any:
    """What a short program prints as JSON on that interpreter; None when it cannot be run."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [python, "-B", "-c", program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=60,
            check=True,
            env=clean,
        )
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def describe(python: str) -> Interpreter | None:
    described = ask(python, DESCRIBE)
    if not described:
        return None
    path, implementation, version, platform, free_threaded, stdlib = described
    return Interpreter(path, implementation, tuple(version), platform, free_threaded, frozenset(stdlib))


def interpreter_named(name: str) -> Interpreter:
    """The interpreter of this path, command or version ("3.12"). Raises WrongUse when there is none."""
    path = shutil.which(name) or shutil.which(f"python{name}")
    found = describe(path) if path else None
    if found is None:
        others = all_interpreters()
        matching = [other for other in others if f"{other.short}.".startswith(f"{name}.")]
        if not matching:
            have = ", ".join(f"{other.short}" for other in others) or "none"
            raise WrongUse(f"--python takes a path, a command or a version; {name!r} is none that runs. Found: {have}")
        found = matching[-1]
    if found.version[:2] < CLAIMED[0]:
        raise WrongUse(f"--python takes Python 3.9 or newer; {name} is {found}")
    return found


def all_interpreters() -> list[Interpreter]:
    """The CPythons, 3.9 or newer, on PATH, in pyenv's folder and where scripts/pythons.sh keeps its own; by version."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"))
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += sorted(pyenv.glob("versions/*/bin"))
    listed = [
        path for folder in folders for path in folder.glob("python3*") if re.fullmatch(r"python3(\.\d+)?t?", path.name)
    ]
    listed += [Path(line) for line in listed_by_script()]
    found: dict[str, Interpreter] = {}
    for interpreter in filter(None, (describe(str(path)) for path in dict.fromkeys(listed))):
        if interpreter.implementation == "cpython" and interpreter.version[:2] >= CLAIMED[0]:
            found.setdefault(os.path.realpath(interpreter.path), interpreter)
    return sorted(found.values(), key=lambda each: (each.version, each.free_threaded, each.path))


def listed_by_script() -> list[str]:
    script = Path(__file__).resolve().with_name("pythons.sh")
    if not script.exists() or not shutil.which("bash"):
        return []
    done = subprocess.run(
        ["bash", str(script)], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=300, check=True
    )
    return done.stdout.splitlines()


# ------------------------------------------------------------------------------------------------------- verdicts


class Verdict(NamedTuple):
    """What came of one rule on one interpreter: "ok", "skip" or "fail", why, and its checks as the kit reports them."""

    rule: rules.Rule
    python: Interpreter
    status: str
    reasons: tuple[str, ...] = ()
    checks: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [check for check in self.checks if check["status"] == "fail"]


class Job(NamedTuple):
    rule: rules.Rule
    python: Interpreter


def verify(jobs: Sequence[Job], options: argparse.Namespace) -> Generator[tuple[int, Verdict], None, None]:
    """Proves the rules, several at once; yields the number of each job with its verdict, as they are done.

    The longest begin first, or one of them would be the last that runs, alone.
    """
    installed = {python: needs_met(jobs, python) for python in {job.python for job in jobs}}
    longest_first = sorted(enumerate(jobs), key=lambda numbered: -effort(numbered[1].rule))
    waiting, running = deque(longest_first), dict[int, supervisor.Supervised]()
    ready = selectors.DefaultSelector()
    try:
        while waiting or running:
            while waiting and len(running) < options.jobs:
                number, job = waiting.popleft()
                early = without_running(job, installed[job.python], options.require)
                if early:
                    yield number, early
                    continue
                run = supervisor.start(plan(job, options))
                if run.done:
                    yield number, judge(job, run.done)
                    continue
                running[number] = run
                ready.register(run.result, selectors.EVENT_READ, number)
            for key, _ in ready.select() if running else ():
                ready.unregister(key.fd)
                run = running.pop(key.data)
                yield key.data, judge(jobs[key.data], supervisor.finish(run))
    finally:
        supervisor.abandon(running.values())


def plan(job: Job, options: argparse.Namespace) -> supervisor.Run:
    """The recipe runs from a copy, so that it can neither harm the original nor write bytecode beside it."""
    modules = [job.rule.path.with_name(f"{name}.py") for name in rules.MODULES]
    beside = [(path.name, path.read_text(encoding="utf-8")) for path in modules if path.exists()]
    return supervisor.Run(
        (job.python.path,),
        bound=options.timeout + len(job.rule.halves) * (options.timeout + 10),
        files=((job.rule.path.name, job.rule.source), *beside),
        arguments=("--timeout", str(options.timeout)),
        reply=True,
    )


def effort(rule: rules.Rule) -> int:
    """How long its proof takes, roughly: a hang needs to be looked at several times."""
    endless = [half for half in rule.halves if re.search("hangs|spins", rule.text(half.outcome))]
    return len(rule.halves) + 4 * len(endless)


def needs_met(jobs: Sequence[Job], python: Interpreter) -> dict[str, str | None]:
    """The installed version of each third-party need on that interpreter; None for what is not installed."""
    names = {name for job in jobs if job.python == python for name in job.rule.needed}
    return dict(ask(python.path, INSTALLED, *sorted(names)) or {}) if names else {}


def without_running(job: Job, installed: dict[str, str | None], required: Sequence[str]) -> Verdict | None:
    """The verdict on what is not run: a recipe that cannot be a proof, or one whose needs are not there."""
    if job.rule.faults:
        return Verdict(*job, "fail", job.rule.faults)
    for name, bounds in job.rule.needs.items():
        version = installed.get(name)
        if version is None or not all(within(rules.numbers(version), *bound) for bound in bounds):
            wanted = name + ",".join(f"{sign}{'.'.join(map(str, bound))}" for sign, bound in bounds)
            seen = "" if version is None else f", not {version}"
            status = "fail" if name in required else "skip"
            return Verdict(*job, status, (f"needs {wanted}{seen} (pip install '{wanted}')",))
    missing = [name for name in job.rule.needed if name in required and installed.get(name) is None]
    if missing:
        return Verdict(*job, "fail", (f"needs {missing[0]} for some of its checks (pip install {missing[0]})",))
    return None


def within(version: tuple[int, ...], sign: str, bound: tuple[int, ...]) -> bool:
    if sign == "==":
        return version[: len(bound)] == bound
    return version >= bound if sign == ">=" else version < bound


def judge(job: Job, seen: supervisor.Observed) -> Verdict:
    """Holds what a recipe reported against what its source declares, and looks at what it left behind."""
    checks = tuple(reported(seen.answer))
    reasons = [f"{check['name']}: {check['reason']}" for check in checks if check["status"] == "fail"]
    names = [check["name"] for check in checks if check["name"] != "import"]
    missing = [half.name for half in job.rule.halves if half.name not in names]
    if missing:
        reasons.append(f"never reported: {', '.join(missing)}; {how_it_ended(seen)}")
    elif len(names) > len(job.rule.halves):
        reasons.append(f"reported more than the {len(job.rule.halves)} functions it declares: {', '.join(names)}")
    elif seen.stopped or seen.status:
        reasons.append(f"all reported, but then {how_it_ended(seen)}")
    for kind, left in (("process", seen.processes), ("file", seen.files), ("segment of shared memory", seen.segments)):
        reasons += [f"running it leaves a {kind}: {name}" for name in left[:5]]
    skipped = [check["reason"] for check in checks if check["status"] == "skip"]
    nothing_left = len(skipped) == len(checks)
    status = "fail" if reasons else "skip" if nothing_left else "ok"
    return Verdict(*job, status, tuple(reasons or skipped), checks, seen.seconds)


def reported(answer: str) -> Iterator[dict[str, Any]]:
    """The checks in a report; a line that was cut off, or written by two processes at once, is as if never written."""
    for line in answer.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def how_it_ended(seen: supervisor.Observed) -> str:
    ends = {
        "late": f"it did not end in {seen.seconds:.0f} s",
        "flood": "it floods its output",
        "failed": f"it could not be run: {seen.detail}",
    }
    status = seen.status or 0
    ended = f"signal {-status} ended it" if status < 0 else f"it exited with status {status}"
    words = "".join(f"\n| {line[:200]}" for line in seen.output.strip().splitlines()[-6:])
    return ends.get(seen.stopped, ended) + words


# --------------------------------------------------------------------------------------------------------- report


class Report:
    """Writes verdicts as text, each as soon as those before it are there, and a line of progress on a terminal."""

    def __init__(self, jobs: Sequence[Job], options: argparse.Namespace) -> None:
        self._jobs, self._options = jobs, options
        self._pythons = list(dict.fromkeys(job.python for job in jobs))
        self._verdicts: dict[int, Verdict] = {}
        self._written = 0
        self._began = time.monotonic()
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._colour = not plain and sys.stdout is not None and sys.stdout.isatty()
        self._progress = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def verdicts(self) -> list[Verdict]:
        return [self._verdicts[number] for number in sorted(self._verdicts)]

    def begin(self) -> None:
        number = len({job.rule.id for job in self._jobs})
        pythons = ", ".join(str(python) for python in self._pythons)
        self._write(f"{pythons} on {self._pythons[0].platform}, {number} rule{'s' * (number != 1)}")

    def add(self, number: int, verdict: Verdict) -> None:
        self._verdicts[number] = verdict
        self.clear_progress()
        while self._written in self._verdicts:
            self._write("\n".join(self._lines(self._verdicts[self._written])))
            self._written += 1
        if self._progress and len(self._verdicts) < len(self._jobs):
            sys.stderr.write(f"{len(self._verdicts)} of {len(self._jobs)}, last {verdict.rule.id}")
            sys.stderr.flush()

    def clear_progress(self) -> None:
        if self._progress:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def end(self) -> None:
        if len(self._pythons) > 1:
            self._write("\n".join(self._matrix()))
        if self._options.floors:
            self._write("\n".join(self._floors()))
        count = counts(self.verdicts)
        seconds = time.monotonic() - self._began
        self._write(f"{count['ok']} ok, {count['skip']} skipped, {count['fail']} failed in {seconds:.1f}s")

    def _lines(self, verdict: Verdict) -> Iterator[str]:
        version = f"{verdict.python.short:<9}" if len(self._pythons) > 1 else ""
        said = "; ".join(dict.fromkeys(verdict.reasons)) if verdict.status == "skip" else self._checks(verdict)
        rule = f"{verdict.rule.id:<{self._width}}"
        yield f"{self._paint(verdict.status)} {rule} {version}{said:<30} {verdict.seconds:.1f}s".rstrip()
        for check in verdict.checks if self._options.verbose else ():
            if check["status"] != "fail":
                what = check["declared"] if check["status"] == "ok" else check["reason"]
                seconds = f"{check['seconds']}s{', calibrated' * check['calibrated']}"
                yield f"      {check['status']:<4} {check['kind']} {check['name']}: {what} ({seconds})"
        if verdict.status == "fail":
            for reason in verdict.reasons:
                yield "      " + reason.replace("\n", "\n      ")
            yield f"      rerun: {shlex.join([verdict.python.path, display(verdict.rule.path)])}"
            if self._options.format == "github":
                yield from annotate(verdict)

    def _checks(self, verdict: Verdict) -> str:
        total = len(verdict.rule.halves)
        if verdict.status == "fail":
            return f"{len(verdict.failed)} of {total} checks" if verdict.failed else "not proven"
        skipped = sum(check["status"] == "skip" for check in verdict.checks)
        calibrated = sum(check["calibrated"] for check in verdict.checks)
        notes = (f"{skipped} skipped" if skipped else "", f"{calibrated} calibrated" if calibrated else "")
        return ", ".join([f"{total} check{'s' * (total != 1)}", *filter(None, notes)])

    def _matrix(self) -> Iterator[str]:
        widths = [max(4, len(python.short)) for python in self._pythons]
        yield f"\n{'':<{self._width}} " + " ".join(f"{p.short:<{w}}" for p, w in zip(self._pythons, widths))
        found = {(verdict.rule.id, verdict.python): verdict.status for verdict in self.verdicts}
        for rule in dict.fromkeys(job.rule.id for job in self._jobs):
            cells = (f"{found[rule, python]:<{width}}" for python, width in zip(self._pythons, widths))
            yield f"{rule:<{self._width}} {' '.join(cells)}".rstrip()

    def _floors(self) -> Iterator[str]:
        for verdict in self.verdicts:
            for check in verdict.checks:
                if check["floor"]:
                    floor = tuple(check["floor"])
                    here = "present" if verdict.python.version[:2] >= floor else "absent"
                    state = here if check["status"] == "ok" else check["status"]
                    since, python = ".".join(map(str, floor)), verdict.python.short
                    yield f"floor {check['name']:<40} {since:<5} {state:<8} {python:<8} {verdict.rule.id}"

    @property
    def _width(self) -> int:
        return max(27, *(len(job.rule.id) for job in self._jobs))

    def _paint(self, status: str) -> str:
        colour = {"ok": 32, "skip": 33, "fail": 31}[status]
        return f"\x1b[{colour}m{status:<5}\x1b[0m" if self._colour else f"{status:<5}"

    def _write(self, text: str) -> None:
        if text:
            console.say(text)


class JsonReport(Report):
    """The same as one JSON document at the end; no path and no host name in it, so that it can be kept as evidence."""

    def begin(self) -> None:
        pass

    def add(self, number: int, verdict: Verdict) -> None:
        self._verdicts[number] = verdict

    def end(self) -> None:
        fields = ("implementation", "version", "platform", "free_threaded")
        document = {
            "schema": 1,
            "interpreters": [{field: getattr(python, field) for field in fields} for python in self._pythons],
            "rules": [
                {
                    "rule": verdict.rule.id,
                    "python": verdict.python.short,
                    "status": verdict.status,
                    "reasons": [without_paths(reason) for reason in verdict.reasons],
                    "checks": [{**check, "reason": without_paths(check["reason"])} for check in verdict.checks],
                    "seconds": verdict.seconds,
                }
                for verdict in self.verdicts
            ],
            "summary": counts(self.verdicts),
        }
        self._write(json.dumps(document, indent=1))


def without_paths(text: str) -> str:
    """Each absolute path cut down to its last part; a URL is none."""
    return re.sub(r"(?<![\w:/.])/(?:[^/\n'\"]*[^/\s'\"]/)+(?=[^/\s])", "", text)


def counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    statuses = [verdict.status for verdict in verdicts]
    return {status: statuses.count(status) for status in ("ok", "skip", "fail")}


def annotate(verdict: Verdict) -> Iterator[str]:
    """GitHub's form of an error at a line."""
    lines = {half.name: half.line for half in verdict.rule.halves}
    for reason in verdict.reasons:
        line = lines.get(reason.partition(":")[0], 1)
        title = f"{verdict.rule.id} on {verdict.python}"
        text = reason.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        yield f"::error file={display(verdict.rule.path)},line={line},title={title}::{text}"


def display(path: Path) -> str:
    """The path as one would type it here: relative to a directory that it is in, other than the root."""
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return str(path)
    return str(path.relative_to(here)) if here in path.parents and here != Path(here.anchor) else str(path)


# ----------------------------------------------------------------------------------------------------- command line


class WrongUse(Exception):
    """The caller asked for something that cannot be; the message says what was expected, seen, and what to do."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rules", nargs="*", metavar="RULE", help="an id, the beginning of ids, or a chapter (all)")
    parser.add_argument("--list", action="store_true", help="list the rules with their claims and stop")
    parser.add_argument("--explain", metavar="ID", help="print this rule as Markdown and stop")
    parser.add_argument("--fixed", metavar="ID", help="print the code of this rule that works, to copy, and stop")
    parser.add_argument("--verbose", "-v", action="store_true", help="a line per check")
    parser.add_argument("--floors", action="store_true", help="a line per version floor: present or absent here")
    parser.add_argument("--python", action="append", default=[], metavar="NAME_OR_PATH", help="prove it there")
    parser.add_argument("--all-pythons", action="store_true", help="prove it on every CPython that can be found")
    parser.add_argument("--require", action="append", default=[], metavar="NEED", help="fail, not skip, without it")
    parser.add_argument("--format", choices=("text", "json", "github"), default="text")
    parser.add_argument("--jobs", "-j", type=positive(int), default=2 * (os.cpu_count() or 1), help="rules at once")
    parser.add_argument("--timeout", type=positive(float), default=60.0, metavar="SECONDS", help="per function (60)")
    parser.add_argument("--recipes", type=Path, default=RECIPES, metavar="DIR", help="where the recipes are")
    return parser.parse_args(argv)


def positive(kind: type[int] | type[float]) -> Any:
    def convert(text: str) -> float:
        value = kind(text)
        if not 0 < value < 1_000_000:
            raise argparse.ArgumentTypeError(f"takes a number above 0, not {text}")
        return value

    convert.__name__ = "number"  # argparse names it when the text is no number at all
    return convert


def select(found: Sequence[rules.Rule], wanted: Sequence[str]) -> list[rules.Rule]:
    """Those named by id, beginning or chapter; all when none is. Raises WrongUse for a name that matches nothing."""
    names = [name.replace("_", "-") for name in wanted]
    for name in names:
        if not name or not any(rule.id.startswith(name) for rule in found):
            near = nearest(name, [rule.id for rule in found])
            hint = f"did you mean {near}?" if near else "--list shows what there is"
            raise WrongUse(f"RULE takes an id, the beginning of ids, or a chapter; {name!r} is none: {hint}")
    exact = {rule.id for rule in found if rule.id in names}
    begins = tuple(name for name in names if name not in exact)
    return [rule for rule in found if not names or rule.id in exact or (begins and rule.id.startswith(begins))]


def nearest(name: str, ids: Sequence[str]) -> str:
    """The id that resembles the name most, as a whole or in its beginning; empty when none does."""
    likeness = {
        id: max(difflib.SequenceMatcher(None, name, part).ratio() for part in (id, id[: len(name)])) for id in ids
    }
    best = max(ids, key=lambda id: likeness[id])
    return best if likeness[best] > 0.5 else ""


def choose_pythons(options: argparse.Namespace) -> list[Interpreter]:
    if not options.all_pythons:
        named = [interpreter_named(name) for name in options.python or [sys.executable]]
        return list(dict.fromkeys(named))
    found = all_interpreters()
    if not found:
        raise WrongUse("--all-pythons found no CPython from 3.9 on: put one on PATH, or name it with --python")
    missing = [version for version in CLAIMED if version not in {python.version[:2] for python in found}]
    if missing:
        names = ", ".join(".".join(map(str, version)) for version in missing)
        console.complain(NAME, f"not found here, so not proven: Python {names}")
    return found


def run(options: argparse.Namespace) -> int:
    pythons = choose_pythons(options)
    if not options.recipes.is_dir():
        raise WrongUse(f"--recipes takes a directory with recipes; {options.recipes} is none")
    known = stdlib().union(NEW_IN_STDLIB, rules.MODULES, *(python.stdlib for python in pythons))
    found = [with_import_faults(rule, known) for rule in rules.find_rules(options.recipes.resolve())]
    if not found:
        raise WrongUse(f"there is no recipe in {options.recipes}: expected files such as sp_timeout_always.py")
    for wanted, write in ((options.explain, quoting.explain), (options.fixed, quoting.fixed_code)):
        if wanted:
            console.say(write(the_one(found, wanted)).rstrip())
            return 0
    chosen = select(found, options.rules)
    unneeded = [need for need in options.require if not any(need in rule.needed for rule in chosen)]
    if unneeded:
        raise WrongUse(f"--require takes what a chosen rule needs; none needs {', '.join(unneeded)}")
    if options.list:
        for rule in chosen:
            console.say(f"{rule.id:<40} {rule.claim}".rstrip())
        return 0
    return prove([Job(rule, python) for rule in chosen for python in pythons], options)


def the_one(found: Sequence[rules.Rule], wanted: str) -> rules.Rule:
    """The rule of exactly this id. Raises WrongUse when there is none, or when it cannot be read."""
    rule = next((rule for rule in select(found, [wanted]) if rule.id == wanted.replace("_", "-")), None)
    if rule is None:
        raise WrongUse(f"expected the whole id of a rule; {wanted!r} is only the beginning of one: --list shows them")
    if rule.faults:
        raise WrongUse(f"{rule.id} {rule.faults[0]}")
    return rule


def with_import_faults(rule: rules.Rule, known: frozenset[str]) -> rules.Rule:
    """Adds the fault of importing what comes neither with Python, nor with the pack, nor from a declared need."""
    if rule.needed:  # what a distribution is called does not say what its modules are called
        return rule
    faults = (f"imports {name}, which its PEP 723 block does not declare" for name in sorted(rule.imports - known))
    return rule._replace(faults=(*rule.faults, *faults))


def stdlib() -> frozenset[str]:
    """The modules that come with this Python; 3.9 has no list of them."""
    if sys.version_info >= (3, 10):
        return sys.stdlib_module_names
    import pkgutil
    import sysconfig

    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    folders += [os.path.join(folder, "lib-dynload") for folder in folders]
    return frozenset(module.name for module in pkgutil.iter_modules(folders)).union(sys.builtin_module_names)


def prove(jobs: Sequence[Job], options: argparse.Namespace) -> int:
    report = (JsonReport if options.format == "json" else Report)(jobs, options)
    report.begin()
    proving = verify(jobs, options)
    try:
        for number, verdict in proving:
            report.add(number, verdict)
    finally:
        proving.close()  # ends what still runs, also when we are asked to stop
        report.clear_progress()
    report.end()
    count = counts(report.verdicts)
    return 0 if count["ok"] and not count["fail"] else 1


def main() -> int:
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"):
        os.environ.pop(name, None)  # the recipes run from copies, and start faster with bytecode
    options = parse(sys.argv[1:])
    try:
        return run(options)
    except WrongUse as error:
        console.complain(NAME, str(error))
        return 2


if __name__ == "__main__":
    sys.exit(console.run(main, NAME))
