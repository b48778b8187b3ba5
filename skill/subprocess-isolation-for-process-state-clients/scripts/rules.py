"""Read rules from the source of their recipes, without importing them.

A recipe is read with `ast`, because importing it would run it, and because what it declares is held against what it
reports: both must not come from the same run.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeGuard  # new in 3.10

CHAPTERS = ("sp", "thread", "proc", "hang", "iso")
MODULES = (  # in recipes/, but no rules
    *("kit", "console", "supervisor", "linux"),
    *("run_tree", "honest_worker", "isolated", "chroma_server"),
)
KINDS = ("broken", "fixed", "check", "shows")
SECTIONS = ("Scope", "Symptom", "Look for", "Sources")
LONGEST_CLAIM = 90
TIMERS = (
    "setitimer",
    "alarm",
    "timerfd_create",
    "timerfd_settime",
    "SO_RCVTIMEO",
    "SO_SNDTIMEO",
)  # a sleeping task does not show them

Place = tuple[int, int]  # the first byte of a piece of source, and the one after its last
Bounds = tuple[tuple[str, tuple[int, ...]], ...]  # such as ((">=", (1, 2)), ("<", (2,)))


class Half(NamedTuple):
    """A declared function or program: where its outcome and its body are in the source.

    The body of a function is its statements; that of a program is the argument of program(). `floor` is the version
    from which the outcome is declared to hold, if that is not the oldest one; `only` is "posix" or "linux" where it is
    declared for these alone; `needs` is a third-party requirement of this half alone.
    """

    name: str
    kind: str
    line: int
    floor: tuple[int, int] | None
    only: str
    needs: str
    outcome: Place
    body: Place
    is_program: bool


class Rule(NamedTuple):
    """One rule as its recipe's source has it.

    sections: the parts of its text that begin with "Scope:", "Symptom:", "Look for:" and "Sources:".
    needs: third-party requirements from the PEP 723 block, by name.
    imports: the modules that it imports, wherever it does.
    faults: why it can be no proof, whatever it does when it runs.
    """

    id: str
    path: Path
    source: str
    claim: str = ""
    why: str = ""
    sections: dict[str, str] = {}  # noqa: RUF012 - never written to
    halves: tuple[Half, ...] = ()
    needs: dict[str, Bounds] = {}  # noqa: RUF012
    imports: frozenset[str] = frozenset()
    faults: tuple[str, ...] = ()

    @property
    def needed(self) -> set[str]:
        """The names of all third-party requirements, of the whole rule or of one half."""
        return {*self.needs, *(read_need(half.needs)[0] for half in self.halves if half.needs and not self.faults)}

    @property
    def chapter(self) -> str:
        return self.id.partition("-")[0]

    def text(self, place: Place) -> str:
        """This piece of the source."""
        return self.source.encode()[slice(*place)].decode()


def find_rules(folder: Path) -> list[Rule]:
    """Every rule in `folder`, in the order of the chapters and then of the ids."""
    rules = [read_rule(path) for path in folder.glob("*.py") if path.stem not in MODULES]
    known = {chapter: place for place, chapter in enumerate(CHAPTERS)}
    return sorted(rules, key=lambda rule: (known.get(rule.chapter, len(known)), rule.id))


def read_rule(path: Path) -> Rule:
    """Reads one recipe. What is wrong with it is in `faults`."""
    rule = Rule(path.stem.replace("_", "-"), path, "")
    source = ""
    try:
        source = path.read_bytes().decode()
        tree = parse(source)
        needs = read_needs(source)
    except OSError as error:
        return rule._replace(faults=(f"cannot be read: {error.strerror}",))
    except (MemoryError, RecursionError):  # what the parser raises for nesting without end
        return rule._replace(faults=("cannot be parsed: it is nested too deeply",))
    except UnicodeDecodeError as error:
        return rule._replace(faults=(f"is not UTF-8: {error}",))
    except SyntaxError as error:
        return rule._replace(source=source, faults=(f"syntax error in line {error.lineno}: {error.msg}",))
    except ValueError as error:
        return rule._replace(source=source, faults=(str(error),))
    claim, why, sections = read_text(ast.get_docstring(tree) or "")
    halves = tuple(read_halves(tree, source))
    rule = Rule(rule.id, path, source, claim, why, sections, halves, needs, frozenset(imported(tree)))
    return rule._replace(faults=(*text_faults(rule), *half_faults(rule, tree), *timer_faults(tree)))


def parse(source: str) -> ast.Module:
    """As ast.parse(), which leaves out docstrings where Python was told to (-OO, from 3.14 on)."""
    tree = compile(source, "<recipe>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True, optimize=0)
    assert isinstance(tree, ast.Module)
    return tree


def read_text(docstring: str) -> tuple[str, str, dict[str, str]]:
    """The claim, the reason, and the sections by name, each without line breaks inside a paragraph's lines."""
    first, *parts = re.split(rf"^({'|'.join(SECTIONS)}): *", docstring, flags=re.MULTILINE)
    claim, _, why = first.partition("\n")
    sections = {name: re.sub(r"\n +", "\n", text.strip()) for name, text in zip(parts[::2], parts[1::2])}
    return claim.strip(), why.strip(), sections


def read_halves(tree: ast.Module, source: str) -> Iterator[Half]:
    """Each `@broken(...) def f` and `f = broken(...)(program(...))` at the top level, in their order."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def place(first: ast.expr | ast.stmt, last: ast.expr | ast.stmt) -> Place:
        assert last.end_lineno is not None and last.end_col_offset is not None
        return starts[first.lineno - 1] + first.col_offset, starts[last.end_lineno - 1] + last.end_col_offset

    def half(name: str, line: int, call: ast.Call, body: Place, is_program: bool) -> Half:
        since = next((word.value for word in call.keywords if word.arg == "since"), None)
        floor = ast.literal_eval(since) if isinstance(since, ast.Tuple) else None
        only = next((word.arg for word in call.keywords if word.arg in ("posix", "linux")), "")
        needs = next((word.value for word in call.keywords if word.arg == "needs"), ast.Constant(""))
        needed = constants.get(needs.id) if isinstance(needs, ast.Name) else literal(ast.unparse(needs))
        outcome = place(call.args[0], call.args[0])
        return Half(name, ast.unparse(call.func), line, floor, only, str(needed), outcome, body, is_program)

    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for call in filter(is_declaration, node.decorator_list):
                yield half(node.name, node.lineno, call, place(node.body[0], node.body[-1]), False)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and is_declaration(node.value.func):
            call = node.value.func
            program = (node.value.args or [call])[0]  # where it is missing, running it will say so
            yield half(ast.unparse(node.targets[0]), node.lineno, call, place(program, program), True)


def is_declaration(node: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS and bool(node.args)


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that it imports, wherever it does, and those that its programs import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            yield from imported_by_text(node.value)


def imported_by_text(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a text that is no program, or one that is to fail
        return
    yield from imported(tree)


def text_faults(rule: Rule) -> Iterator[str]:
    if rule.chapter not in CHAPTERS:
        yield f"its file's name must begin with one of {', '.join(CHAPTERS)}"
    if not 0 < len(rule.claim) <= LONGEST_CLAIM:
        yield f"its text must begin with a claim of at most {LONGEST_CLAIM} characters, not {len(rule.claim)}"
    for section in SECTIONS:
        if not rule.sections.get(section):
            yield f"its text has no `{section}: `"


def half_faults(rule: Rule, tree: ast.Module) -> Iterator[str]:
    kinds = [half.kind for half in rule.halves]
    names = [half.name for half in rule.halves]
    declarations = [call for call in ast.walk(tree) if isinstance(call, ast.expr) and is_declaration(call)]
    if not declarations:
        yield "declares no function"
    elif len(declarations) > len(names):
        yield f"declares {len(declarations)} functions, but only {len(names)} of them at its top level"
    elif "shows" not in kinds:
        yield from (f"has no {kind} half" for kind in ("broken", "fixed") if kind not in kinds)
    for half in rule.halves:
        try:
            _ = half.needs and read_need(half.needs)
        except ValueError as error:
            yield f"{half.name}: {error}"
    yield from (f"declares {name} twice" for name in sorted({name for name in names if names.count(name) > 1}))
    broken = {rule.text(half.outcome): half.name for half in rule.halves if half.kind == "broken"}
    for half in rule.halves:
        same = broken.get(rule.text(half.outcome))
        if half.kind == "fixed" and same:
            yield f"{same} is broken and {half.name} is fixed, but both declare the same outcome"
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if declarations and not any(isinstance(called, ast.Name) and called.id == "main" for called in calls):
        yield "never calls main(), so that running it proves nothing"


def timer_faults(tree: ast.Module) -> Iterator[str]:
    """Timers that the kernel does not show where it shows what a task waits for; in a program's text, too."""
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.alias):
            words.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node is not docstring_of(tree):
            words.update(re.findall(r"\w+", node.value))
    yield from (
        f"uses {name}: a hang beside a timer that nothing shows is no proof" for name in TIMERS if name in words
    )


def docstring_of(tree: ast.Module) -> ast.expr | None:
    return tree.body[0].value if isinstance(tree.body[0], ast.Expr) else None


def read_needs(source: str) -> dict[str, Bounds]:
    """The dependencies of a PEP 723 block in the one form that is allowed: `# dependencies = ["name>=1.2,<2"]`.

    Raises ValueError for a block in another form.
    """
    block = re.search(r"^# /// script$(.*?)^# ///$", source, re.MULTILINE | re.DOTALL)
    if not block:
        return {}
    line = re.fullmatch(r"\s*# dependencies = (\[.*\])\s*", block[1])
    listed = literal(line[1]) if line else None
    if not isinstance(listed, list):
        raise ValueError('its PEP 723 block must have one line, of the form: # dependencies = ["name>=1.2,<2"]')
    return dict(map(read_need, listed))


def read_need(need: object) -> tuple[str, Bounds]:
    """The name and the bounds of a requirement such as name>=1.2,<2. Raises ValueError for one in another form."""
    bound = r"(?:>=|<|==)\d+(?:\.\d+)*"
    parts = isinstance(need, str) and re.fullmatch(rf"([A-Za-z0-9._-]+)({bound}(?:,{bound})*)", need)
    if not parts:
        raise ValueError(f"its need {need!r} is not a name with numeric bounds, such as name>=1.2,<2")
    bounds = re.findall(r"(>=|<|==)([0-9.]+)", parts[2])
    return parts[1], tuple((sign, numbers(version)) for sign, version in bounds)


def literal(text: str) -> object:
    """The value that the text writes down; None when it is no literal."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return None


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
