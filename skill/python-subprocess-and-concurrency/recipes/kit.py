"""Declare what code does, and prove it: the kit of every recipe.

A recipe declares an outcome for each of its functions; the kit runs each one in a fresh interpreter and compares:

    @broken(hangs(at="child.wait()"))          it gets stuck, and that is the line
    @fixed(returns(1_000_000))                 it comes back with this value
    @check(raises(OSError, "Bad file"))        a fact that the text relies on
    @shows(returns(2))                         a technique: nothing is broken here
    unguarded = broken(exits(1))(program(SOURCE))    where the whole program is the point

An outcome is one end (`hangs`, `spins`, `returns`, `raises`, `dies`, `exits`) and what comes with it (`prints`,
`leaves`): `exits(0) & prints("...")`. What differs between Python versions is declared per range, and exactly one
alternative must hold on each: `raises(A, "x", until=(3, 13)) | raises(B, "y", since=(3, 14))`.

Each function runs as a program, `recipe.py --function NAME`, below a supervisor (supervisor.py), which on Linux proves
a hang from the kernel's own account (linux.py). Elsewhere a hang is what outlasts the fixed halves ten times over.

Importing this module has no effect. What only the proving side needs is imported there, since every function starts
an interpreter that imports this module.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar, Union

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from supervisor import Observed

Version = tuple[int, int]
OLDEST: Version = (3, 9)
NEWEST: Version = (99, 0)

# ------------------------------------------------------------------------------------------------------ outcomes


class Seen(NamedTuple):
    """One run as it is compared: how it was observed, what it replied, and the line of the recipe where it stood.

    reply: ("returned", REPR), ("raised", NAME, MESSAGE), or empty when it neither returned nor raised.
    at: None when it was not stopped, or stood in no line of the recipe.
    whole: whether it was a whole program, which exits with status 1 when it raises.
    """

    run: Observed
    reply: tuple[str, ...]
    at: str | None
    whole: bool

    def __str__(self) -> str:
        run, where = self.run, f" at `{self.at}`" if self.at is not None else ""
        stopped = {
            "hang": f"hangs{where}",
            "spin": f"never ends{where}",
            "timer": f"waits on a timer: {run.detail}; hold a half with a blocked read or `sleep infinity` instead",
            "late": f"did not end in {run.seconds:.0f} s{where}" + (f": {run.detail}" if run.detail else ""),
            "flood": f"floods its output: {len(run.output)} bytes and more",
            "failed": f"could not be run: {run.detail}",
        }
        left = Left.of(run)
        names = _short(", ".join(run.processes + run.files + run.segments), 200)
        return (stopped.get(run.stopped) or self._end()) + (f", leaves {left} ({names})" if any(left) else "")

    @property
    def status_of_reply(self) -> int | None:
        """The status with which an interpreter ends after such a reply, unless something else happens."""
        if self.reply[:1] == ("returned",):
            return 0
        interrupted = self.reply[:2] == ("raised", "KeyboardInterrupt") and os.name == "posix"
        return (-2 if interrupted else 1) if self.reply else None

    def _end(self) -> str:
        status = self.run.status or 0
        ended = f"dies of {_signal_name(-status)}" if status < 0 else f"exits with status {status}"
        if not self.reply:
            return ended
        then = f", then {ended}" if status != self.status_of_reply else ""
        if self.reply[0] == "returned":
            return f"returns {_short(self.reply[1])}{then}"
        return f"raises {self.reply[1]}: {_short(self.reply[2], 200)}{then}"

    def stands_at(self, text: str) -> bool:
        """Whether that line contains `text`; where there is no fork there are no stacks, and nothing to compare."""
        return not hasattr(os, "fork") or (self.at is not None and text in self.at)


class Hangs(NamedTuple):
    at: str
    despite: tuple[str, ...]

    def __str__(self) -> str:
        return f"hangs at `{self.at}`"

    def met(self, seen: Seen) -> bool:
        return seen.run.stopped == "hang" and seen.stands_at(self.at)


class Spins(NamedTuple):
    text: str
    times: int
    at: str

    def __str__(self) -> str:
        return f"never ends, stands at `{self.at}`, and repeats `{self.text}`"

    def met(self, seen: Seen) -> bool:
        return seen.run.stopped == "spin" and seen.stands_at(self.at)


class Returns(NamedTuple):
    value: str

    def __str__(self) -> str:
        return f"returns {_short(self.value)}"

    def met(self, seen: Seen) -> bool:
        return seen.reply == ("returned", self.value) and seen.run.status == seen.status_of_reply


class Raises(NamedTuple):
    name: str
    text: str

    def __str__(self) -> str:
        return f"raises {self.name}" + (f": {self.text}" if self.text else "")

    def met(self, seen: Seen) -> bool:
        if seen.run.status != seen.status_of_reply or seen.reply[:2] != ("raised", self.name):
            return False
        return self.text in seen.reply[2] if self.text else not seen.reply[2]


class Dies(NamedTuple):
    signal: str

    def __str__(self) -> str:
        return f"dies of {self.signal}"

    def met(self, seen: Seen) -> bool:
        status = seen.run.status
        return status is not None and status < 0 and _signal_name(-status) == self.signal


class Exits(NamedTuple):
    status: int

    def __str__(self) -> str:
        return f"exits with status {self.status}"

    def met(self, seen: Seen) -> bool:
        return (seen.whole or not seen.reply) and seen.run.status == self.status


End = Union[Hangs, Spins, Returns, Raises, Dies, Exits]


class Left(NamedTuple):
    """How many processes, files (in its working and temporary directories) and segments of shared memory outlive it."""

    processes: int = 0
    files: int = 0
    segments: int = 0

    @classmethod
    def of(cls, run: Observed) -> Left:
        return cls(len(run.processes), len(run.files), len(run.segments))

    def __str__(self) -> str:
        names = (("process", "processes"), ("file", "files"), ("segment", "segments"))
        return " and ".join(f"{number} {name[number != 1]}" for number, name in zip(self, names) if number)


class Outcome(NamedTuple):
    """One end and what comes with it, on a range of Python versions; `a & b` combines, `a | b` adds a range."""

    end: End | None = None
    prints: tuple[str, ...] = ()
    left: Left = Left()
    since: Version = OLDEST
    until: Version = NEWEST

    def __and__(self, other: Outcome) -> Outcome:
        if self.end and other.end:
            raise TypeError(f"an outcome has one end, not two: {self.end}; {other.end}")
        left = Left(*(mine + theirs for mine, theirs in zip(self.left, other.left)))
        since, until = max(self.since, other.since), min(self.until, other.until)
        return Outcome(self.end or other.end, self.prints + other.prints, left, since, until)

    def __or__(self, other: Outcome | Choice) -> Choice:
        return Choice((self,)) | other

    def __str__(self) -> str:
        prints = "".join(f", prints {text!r}" for text in self.prints)
        return f"{self.end}{prints}" + (f", leaves {self.left}" if any(self.left) else "")

    def met(self, seen: Seen) -> bool:
        """Whether the run did as declared. What it leaves is no question when it was stopped, or cannot be counted."""
        as_declared = self.end is not None and self.end.met(seen)
        printed = all(text in seen.run.output for text in self.prints)
        left = zip(Left._fields, self.left, Left.of(seen.run))
        as_left = all(mine == theirs for kind, mine, theirs in left if kind in seen.run.counted)
        return as_declared and printed and (bool(seen.run.stopped) or as_left)


class Choice(NamedTuple):
    """Alternatives of which exactly one holds on each version of Python."""

    outcomes: tuple[Outcome, ...]

    def __or__(self, other: Outcome | Choice) -> Choice:
        return Choice(self.outcomes + (other.outcomes if isinstance(other, Choice) else (other,)))

    def on(self, version: Version) -> Outcome | None:
        """The one outcome declared for `version`; None when there is none, or more than one."""
        here = [outcome for outcome in self.outcomes if outcome.since <= version <= outcome.until]
        return here[0] if len(here) == 1 else None


def hangs(*, at: str, despite: str | tuple[str, ...] = (), since: Version = OLDEST, until: Version = NEWEST) -> Outcome:
    """Never moves again, with `at` in the innermost line of the recipe: the main thread's, or another thread's where
    the main one is in no line of the recipe (at interpreter exit). `despite` names threads of a library, by the
    beginning of the name that the system knows, which are not looked at. A thread or child that has polled three times
    is taken for housekeeping: no half may wait for one that would end."""
    if not at:
        raise TypeError("hangs(at=...) takes a part of the line where it hangs, not an empty text")
    return Outcome(Hangs(at, (despite,) if isinstance(despite, str) else despite), since=since, until=until)


def spins(text: str, *, times: int, at: str, since: Version = OLDEST, until: Version = NEWEST) -> Outcome:
    """Never ends, because something is done again and again: while the main thread waits at `at`, without a timeout,
    others print `text` at least `times` times."""
    if not text or not at or times < 2:
        raise TypeError("spins() takes a text, how often it comes at least (2 or more), and a part of a line")
    return Outcome(Spins(text, times, at), since=since, until=until)


def returns(value: object, *, since: Version = OLDEST, until: Version = NEWEST) -> Outcome:
    """Returns this value, made of None, bool, int, float, str, bytes, tuple, list and dict, and the interpreter then
    ends with status 0. Values are compared by repr, so that True is not 1."""
    _require_literal(value)
    return Outcome(Returns(repr(value)), since=since, until=until)


def raises(error: type[BaseException], text: str, *, since: Version = OLDEST, until: Version = NEWEST) -> Outcome:
    """Raises exactly `error`, no subclass, with `text` in its message ("" where the message is empty)."""
    return Outcome(Raises(_name_of(error), text), since=since, until=until)


def dies(signal: str, *, since: Version = OLDEST, until: Version = NEWEST) -> Outcome:
    """Is ended by the signal of this name, such as "SIGKILL"."""
    return Outcome(Dies(signal), since=since, until=until)


def exits(status: int, *, since: Version = OLDEST, until: Version = NEWEST) -> Outcome:
    """Ends with this status and without a value: sys.exit, os._exit, or the end of a whole program."""
    return Outcome(Exits(status), since=since, until=until)


def prints(text: str) -> Outcome:
    """`text` is part of what it and its children write to standard output and standard error."""
    return Outcome(prints=(text,))


def leaves(processes: int = 0, *, files: int = 0, segments: int = 0) -> Outcome:
    """So many processes, files and segments of shared memory are left behind; where it is not said, none may be.
    multiprocessing's resource tracker and fork server end by themselves and are not counted."""
    return Outcome(left=Left(processes, files, segments))


# -------------------------------------------------------------------------------------------------------- halves


class Program(NamedTuple):
    """A whole program, run from a file of its own. It cannot return: it exits, raises, dies, hangs or spins."""

    source: str
    proof: Proof | None = None


class Proof(NamedTuple):
    """What was declared for one function or program."""

    kind: str
    choice: Choice
    floor: Version | None
    posix: str
    linux: str
    free_threaded: Outcome | None = None
    needs: str = ""

    def expected(self, version: Version, gil: bool) -> Outcome | None:
        """What must come on such a build; None where not exactly one outcome is declared for it."""
        return self.free_threaded if self.free_threaded and not gil else self.choice.on(version)


Half = TypeVar("Half")


def program(source: str) -> Program:
    """Makes a half of a whole program's text: `unguarded = broken(exits(1))(program(SOURCE))`."""
    return Program(source)


def broken(outcome: Outcome | Choice, **options: Any) -> Callable[[Half], Half]:
    """Declares code that fails, and how. The options are those of all four kinds of declaration:

    since, before: a floor. From Python `since` on the outcome holds, and below it `before` does. `before` is required
        above 3.9, the oldest Python there is proof for: a floor that is too low or too high fails.
    posix, linux: why it runs only there.
    free_threaded: the outcome on a build without the GIL, where it is another. No run has proven one yet.
    needs: a third-party requirement of this half alone, such as "chromadb>=1.0,<1.5": without it, it is skipped.

    Raises TypeError for a declaration that could not be proven.
    """
    return _declare("broken", outcome, **options)


def fixed(outcome: Outcome | Choice, **options: Any) -> Callable[[Half], Half]:
    """Declares code that works; options as for `broken`."""
    return _declare("fixed", outcome, **options)


def check(outcome: Outcome | Choice, **options: Any) -> Callable[[Half], Half]:
    """Declares a fact that the text relies on; options as for `broken`."""
    return _declare("check", outcome, **options)


def shows(outcome: Outcome | Choice, **options: Any) -> Callable[[Half], Half]:
    """Declares a technique, which needs no broken half; options as for `broken`."""
    return _declare("shows", outcome, **options)


def _declare(
    kind: str,
    outcome: Outcome | Choice,
    *,
    since: Version | None = None,
    before: Outcome | None = None,
    posix: str = "",
    linux: str = "",
    free_threaded: Outcome | None = None,
    needs: str = "",
) -> Callable[[Half], Half]:
    choice = outcome if isinstance(outcome, Choice) else Choice((outcome,))
    if since is not None and since > OLDEST:
        if before is None:
            raise TypeError(f"the floor {since} takes before=: what happens on older Pythons")
        above = tuple(each._replace(since=max(each.since, since)) for each in choice.outcomes)
        choice = Choice((*above, before._replace(until=(since[0], since[1] - 1))))
    elif before is not None:
        raise TypeError("before= goes with a floor above 3.9: since=(3, N)")
    for each in filter(None, (*choice.outcomes, free_threaded)):
        if each.end is None:
            raise TypeError("an outcome takes an end: hangs, spins, returns, raises, dies or exits")
        if isinstance(each.end, (Hangs, Spins)) and any(each.left):
            raise TypeError("what hangs or spins is killed with all that it started: it leaves nothing to count")
    proof = Proof(kind, choice, since, posix, linux, free_threaded, needs)

    def attach(half: Half) -> Half:
        if isinstance(half, Program):
            return half._replace(proof=proof)
        vars(half)["proof"] = proof  # and no wrapper around it, which could not be pickled
        return half

    return attach


# --------------------------------------------------------------------------------------------------------- prove


class Recipe(NamedTuple):
    """The recipe that runs as this program: its path, its source, and what it declares in order."""

    path: str
    source: str
    halves: dict[str, Any]

    def proof(self, name: str) -> Proof:
        proof = self.halves[name].proof
        assert isinstance(proof, Proof)
        return proof


class Result(NamedTuple):
    """What came of one declared half. `status` is "ok", "fail" or "skip"; `reason` says why it is not ok."""

    name: str
    kind: str
    status: str
    declared: str
    reason: str = ""
    floor: Version | None = None
    calibrated: bool = False
    seconds: float = 0.0


def prove(recipe: Recipe, names: Sequence[str], bound: float, report: Callable[[Result], None]) -> None:
    """Proves the named halves one after the other and reports each when it is done. `bound` is in seconds for each.

    Where a hang cannot be proven from the kernel's account, the fixed halves go first: they calibrate for how long
    the others are waited for.
    """
    import linux

    tells, longest = linux.tells(), 0.0
    in_turn = names if tells else sorted(names, key=lambda name: recipe.proof(name).kind != "fixed")
    for name in in_turn:
        result = _prove_one(recipe, name, bound, 0.0 if tells else max(2.0, 10 * longest))
        if result.kind == "fixed":
            longest = max(longest, result.seconds)
        report(result)


def _prove_one(recipe: Recipe, name: str, bound: float, patience: float) -> Result:
    proof, version = recipe.proof(name), (sys.version_info[0], sys.version_info[1])
    outcome = proof.expected(version, gil=getattr(sys, "_is_gil_enabled", lambda: True)())  # it came with 3.13
    result = Result(name, proof.kind, "fail", str(outcome), floor=proof.floor)
    if outcome is None:
        return result._replace(reason=f"exactly one outcome must be declared for Python {version[0]}.{version[1]}")
    if proof.posix and os.name != "posix":
        return result._replace(status="skip", reason=f"POSIX only: {proof.posix}")
    if proof.linux and not sys.platform.startswith("linux"):
        return result._replace(status="skip", reason=f"Linux only: {proof.linux}")
    unmet = _unmet(proof.needs) if proof.needs else ""
    if unmet:
        return result._replace(status="skip", reason=f"needs {proof.needs}{unmet} (pip install '{proof.needs}')")
    seen = _see(recipe, name, outcome, bound, patience)
    result = result._replace(seconds=seen.run.seconds, calibrated=seen.run.detail == "calibrated")
    uncounted = [kind for kind, number in outcome.left._asdict().items() if number and kind not in seen.run.counted]
    if uncounted and not seen.run.stopped:
        return result._replace(status="skip", reason=f"here nobody can tell how many {uncounted[0]} are left")
    if not _is_intact(recipe):
        return result._replace(reason="changes or removes the recipe's own file")
    if outcome.met(seen):
        return result._replace(status="ok")
    return result._replace(reason=f"declared {outcome}; observed {seen}{_last_words(seen)}")


def _unmet(need: str) -> str:
    """What is here in the place of this requirement; empty when it is met."""
    import re
    from importlib import metadata

    name, bounds = re.split(r"(?=[<>=])", need, maxsplit=1)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return ", which is not installed"
    here = [int(number) for number in re.findall(r"\d+", version)]
    for sign, text in re.findall(r"(>=|<|==)([0-9.]+)", bounds):
        bound = [int(number) for number in text.split(".")]
        if not {">=": here >= bound, "<": here < bound, "==": here[: len(bound)] == bound}[sign]:
            return f", not {version}"
    return ""


def _is_intact(recipe: Recipe) -> bool:
    try:
        with open(recipe.path, encoding="utf-8") as file:
            return file.read() == recipe.source
    except (OSError, UnicodeDecodeError):
        return False


def _see(recipe: Recipe, name: str, outcome: Outcome, bound: float, patience: float) -> Seen:
    """Runs one half as a program: the recipe with `--function NAME`, or the half's own source."""
    import supervisor

    half, end = recipe.halves[name], outcome.end
    hang = isinstance(end, Hangs)
    run = supervisor.Run(
        (sys.executable, "-X", "faulthandler"),
        bound,
        watch=not patience,
        hang=hang,
        despite=end.despite if isinstance(end, Hangs) else (),
        spin=(end.text, end.times) if isinstance(end, Spins) else None,
        patience=patience if hang else 0.0,
    )
    if isinstance(half, Program):
        observed = supervisor.finish(supervisor.start(run._replace(files=(("program.py", half.source),))))
        reply = _traceback(observed.output) if observed.status == 1 else ()
        place, source = "program.py", half.source
    else:
        run = run._replace(argv=(*run.argv, recipe.path), arguments=("--function", name), reply=True)
        observed = supervisor.finish(supervisor.start(run))
        reply = _reply(observed.answer)
        place, source = os.path.basename(recipe.path), recipe.source
    if not observed.stopped:
        return Seen(observed, reply, None, isinstance(half, Program))
    output, found, stacks = observed.output.rpartition(supervisor.DUMP)
    observed = observed._replace(output=output if found else stacks)
    return Seen(observed, reply, _innermost_line(stacks, place, source), isinstance(half, Program))


def _innermost_line(stacks: str, place: str, source: str) -> str | None:
    """The line of the recipe nearest to where it stands: in the main thread, or failing that in another one."""
    import re

    threads = re.split(r"^(?=(?:Current thread|Thread) 0x)", stacks, flags=re.MULTILINE)
    threads.sort(key=lambda thread: "in _bootstrap" in thread)  # where all threads begin but the main one
    frame = re.compile(rf'^  File ".*\b{re.escape(place)}", line (\d+) in ', re.MULTILINE)
    innermost = [int(found[1]) for found in map(frame.search, threads) if found]  # a stack begins with its last call
    lines = source.splitlines()
    return lines[innermost[0] - 1].strip() if innermost and innermost[0] <= len(lines) else None


def _reply(answer: str) -> tuple[str, ...]:
    import ast

    try:
        return tuple(ast.literal_eval(answer)) if answer else ()
    except (SyntaxError, ValueError):  # it was killed while it wrote
        return ()


def _traceback(output: str) -> tuple[str, ...]:
    """The exception that ended a whole program: the last traceback's, from the first line that is not indented."""
    _, found, text = output.rpartition("Traceback (most recent call last):\n")
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if not line.startswith(" ")), None)
    if not found or first is None:
        return ()
    name, _, message = "\n".join(lines[first:]).partition(": ")
    return ("raised", name.strip().removeprefix("__main__."), message.strip())  # 3.9 and 3.10 print it


def _last_words(seen: Seen) -> str:
    """The end of what it printed, where that helps to see why it did otherwise than declared."""
    lines = () if seen.reply[:1] == ("returned",) else seen.run.output.strip().splitlines()[-6:]
    return "".join(f"\n| {_short(line, 200)}" for line in lines)


# ---------------------------------------------------------------------------------------------------------- main


def main() -> None:
    """What a recipe does as a program: `recipe.py` proves itself, and `--function NAME` runs one function as it is."""
    module = sys.modules["__main__"]
    halves = {name: half for name, half in vars(module).items() if isinstance(getattr(half, "proof", None), Proof)}
    if sys.argv[1:2] == ["--function"]:  # ahead of all else: nothing but the function may happen in this interpreter
        _perform(halves)
        return
    path = os.path.abspath(str(module.__file__))
    with open(path, encoding="utf-8") as file:
        recipe = Recipe(path, file.read(), halves)
    sys.exit(_command_line(recipe, str(module.__doc__ or "").partition("\n")[0]))


def _perform(halves: dict[str, Any]) -> None:
    """Runs one function. The interpreter then ends as that of any program does: a hang at exit is an outcome, too."""
    name, reply = sys.argv[2] if sys.argv[2:] else "", sys.argv[4] if sys.argv[3:4] == ["--reply"] else None
    half = halves.get(name)
    if half is None or isinstance(half, Program):
        functions = ", ".join(each for each in halves if not isinstance(halves[each], Program))
        sys.exit(f"{sys.argv[0]}: --function takes one of {functions}; {name!r} is none of them")
    del sys.argv[1:]
    process = os.getpid()  # what the function forks may come back here, too, but has nothing to say
    file = open(reply, "w", encoding="utf-8", errors="backslashreplace") if reply else sys.stdout  # noqa: SIM115
    answer: tuple[str, ...] = ()
    try:
        answer = ("returned", repr(half()))
    except SystemExit:
        raise
    except BaseException as error:
        answer = ("raised", _name_of(type(error)), str(error))
        raise
    finally:
        if answer and os.getpid() == process:
            file.write(f"{answer!r}\n")
            file.flush()


def _command_line(recipe: Recipe, claim: str) -> int:
    import argparse

    import console

    parser = argparse.ArgumentParser(description=claim)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the halves to prove (all)")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="bound on each of them (60)")
    parser.add_argument("--reply", metavar="FILE", help="write the results there, as lines of JSON")
    options = parser.parse_args()
    if not 0 < options.timeout < 1_000_000:
        parser.error(f"--timeout takes a number of seconds above 0, not {options.timeout}")
    options.names = options.names or list(recipe.halves)
    for name in options.names:
        if name not in recipe.halves:
            parser.error(f"NAME is one of {', '.join(recipe.halves)}; {name!r} is none of them")
    report = _report_to_file if options.reply else _report_to_reader
    return console.run(lambda: report(recipe, claim, options), os.path.basename(recipe.path))


def _report_to_reader(recipe: Recipe, claim: str, options: argparse.Namespace) -> int:
    import console

    results: list[Result] = []

    def report(result: Result) -> None:
        results.append(result)
        said = result.declared if result.status == "ok" else result.reason.replace("\n", "\n      ")
        calibrated = ", calibrated" if result.calibrated else ""
        head = f"{result.status:<5} {result.kind:<6} {result.name}"
        console.say(f"{head}: {said} ({result.seconds:.1f} s{calibrated})")

    rule = os.path.splitext(os.path.basename(recipe.path))[0].replace("_", "-")
    python = f"{sys.implementation.name} {'.'.join(map(str, sys.version_info[:3]))}"
    console.say(f"{rule} on {python}, {sys.platform}\n{claim}")
    prove(recipe, options.names, options.timeout, report)
    count = {status: sum(result.status == status for result in results) for status in ("ok", "skip", "fail")}
    console.say(f"{count['ok']} ok, {count['skip']} skipped, {count['fail']} failed")
    return 0 if count["ok"] and not count["fail"] else 1


def _report_to_file(recipe: Recipe, _: str, options: argparse.Namespace) -> int:
    """For the verifier. Each result is written when it is there, so that an accident later loses none."""
    import json

    with open(options.reply, "w", encoding="utf-8") as file:

        def report(result: Result) -> None:
            print(json.dumps(result._asdict()), file=file, flush=True)

        if not os.path.samefile(os.environ["PWD"], os.getcwd()):
            report(Result("import", "check", "fail", "", "importing it changes the working directory"))
        prove(recipe, options.names, options.timeout, report)
    return 0


def _require_literal(value: object) -> None:
    if isinstance(value, (tuple, list, dict)):
        for item in value.items() if isinstance(value, dict) else value:
            _require_literal(item)
    elif not isinstance(value, (type(None), bool, int, float, str, bytes)):
        raise TypeError(f"returns() takes plain values, not a {type(value).__name__}: return its parts instead")


def _name_of(error: type[BaseException]) -> str:
    """The class's name as a traceback shows it."""
    module = error.__module__
    return error.__qualname__ if module in ("builtins", "__main__") else f"{module}.{error.__qualname__}"


def _signal_name(number: int) -> str:
    import signal

    return signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
