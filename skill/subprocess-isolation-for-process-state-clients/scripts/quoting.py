"""A rule as Markdown, and its code without the kit: what is quoted from a recipe.

Everything is read from the recipe's source; nothing is run. Quoted code is complete: with it come the imports,
constants and functions of the recipe that it uses.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from typing import TYPE_CHECKING, NamedTuple

import rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST_BLOCK = 1_800
PLATFORMS = {"posix": "POSIX", "linux": "Linux"}


def explain(rule: rules.Rule, recipes: str = "../recipes") -> str:
    """The rule as Markdown: claim, reason, scope, the first half of each kind, proof and sources. `recipes` is where
    the link to the proof leads."""
    scope = " ".join(rule.sections["Scope"].split())
    sources = " ".join(f"<{word}>" if word.startswith("http") else word for word in rule.sections["Sources"].split())
    proof = f"Proof: [{rule.path.name}]({recipes}/{rule.path.name}). Sources: {sources}"
    claim = f"**{rule.claim}**" + "".join(f" *{limit}.*" for limit in limits(rule))
    listings = [f"```python\n{listing}\n```" for listing in listed(rule, shown(rule))]
    return "\n\n".join([f"### {rule.id}", claim, rule.why, f"*Scope*: {scope}", *listings, proof]) + "\n"


def shown(rule: rules.Rule) -> list[rules.Half]:
    """The first half of each kind that a reader learns from."""
    firsts = {half.kind: half for half in reversed(rule.halves)}
    return [firsts[kind] for kind in ("broken", "fixed", "shows") if kind in firsts]


def limits(rule: rules.Rule) -> Iterator[str]:
    """Where alone what is shown holds: the platform and the oldest Python, where there is a limit."""
    halves = shown(rule)
    only = {half.only for half in halves}
    if "" not in only:
        yield PLATFORMS["posix" if "posix" in only else "linux"]
    floors = [half.floor for half in halves if half.floor and half.floor > (3, 9)]
    if floors:
        yield "Python {}.{}+".format(*max(floors))


def listed(rule: rules.Rule, halves: list[rules.Half]) -> Iterator[str]:
    """The halves as listings, each half under its label: the functions as one program, whole programs on their own."""
    recipe = Recipe.of(rule)
    functions = [half for half in halves if not half.is_program]
    parts = {half.name: recipe.needed(half.name) for half in functions}
    done: list[ast.stmt] = []
    pieces: list[str] = []
    for half in functions:
        later = [part for other in functions if other is not half for part in parts[other.name]]
        shared = [part for part in parts[half.name] if part in later and part not in done]
        own = [part for part in parts[half.name] if part not in later]
        pieces += [recipe.text(part) for part in shared]
        code = [recipe.text(part) for part in (*own, recipe.definitions[half.name])]
        pieces += [f"{label(rule, half)}\n{code[0]}", *code[1:]]
        done += shared
    if functions:
        yield "\n\n".join([*recipe.imports(parts), *pieces])
    yield from (f"{label(rule, half)}\n{quoted(rule, half)}" for half in halves if half.is_program)


def fixed_code(rule: rules.Rule) -> str:
    """All that works, as one piece of code to copy, imports included: without the halves that only demonstrate it."""
    recipe = Recipe.of(rule)
    halves = [half for half in rule.halves if half.kind in ("fixed", "shows")]
    broken = [half.name for half in rule.halves if half.kind == "broken" and not half.is_program]
    scaffolding = [part for name in broken for part in recipe.needed(name)]
    functions = [name for half in halves if not half.is_program for name in recipe.technique(half.name, scaffolding)]
    wanted = [part for name in functions for part in (*recipe.needed(name), recipe.definitions[name])]
    code = [recipe.text(part) for part in recipe.tree.body if part in wanted]
    programs = [quoted(rule, half) for half in halves if half.is_program]
    return "\n\n\n".join([*recipe.imports(functions), *code, *programs]) + "\n"


def quoted(rule: rules.Rule, half: rules.Half) -> str:
    """The half without the kit: its code, and before it the imports, constants and functions that it uses."""
    recipe = Recipe.of(rule)
    return recipe.program(half) if half.is_program else definition(rule, half.name)


def definition(rule: rules.Rule, name: str) -> str:
    """The function or class of this name in the recipe, with all that it uses. Raises KeyError when there is none."""
    recipe = Recipe.of(rule)
    return "\n\n".join([*recipe.imports([name]), *map(recipe.text, [*recipe.needed(name), recipe.definitions[name]])])


def undefined(code: str) -> set[str]:
    """The global names that the code uses and neither defines nor finds among the builtins."""
    tables = [symtable.symtable(code, "quoted", "exec")]
    for table in tables:  # grows while it is walked
        tables += table.get_children()
    top = {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    names = {symbol.get_name() for table in tables for symbol in table.get_symbols() if symbol.is_global()}
    names |= {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_referenced()}
    return names - top - set(dir(builtins)) - {"__file__", "__name__"}


class Recipe(NamedTuple):
    """The parts of a recipe's source: its statements, and which of them defines a name."""

    tree: ast.Module
    lines: list[str]
    definitions: dict[str, ast.stmt]

    @classmethod
    def of(cls, rule: rules.Rule) -> Recipe:
        tree = rules.parse(rule.source)
        return cls(tree, rule.source.splitlines(), {name: node for node in tree.body for name in defined(node)})

    def needed(self, name: str) -> list[ast.stmt]:
        """The definitions that it uses, directly or through another one, in the recipe's order; no imports."""
        found = [self.definitions[name]]
        for each in found:  # grows while it is walked
            uses = [self.definitions[other] for other in used(each) & self.definitions.keys()]
            found += [node for node in uses if node not in found]
        return [node for node in self.tree.body if node in found[1:] and not is_import(node)]

    def technique(self, half: str, scaffolding: list[ast.stmt]) -> list[str]:
        """What is there to copy of a half: the functions that it calls, or else those that it hands on, as far as they
        are no scaffolding, which broken halves need, too; or else the half itself."""
        body = self.definitions[half]
        called = {ast.unparse(node.func) for node in ast.walk(body) if isinstance(node, ast.Call)}
        named = {node.value for node in ast.walk(body) if isinstance(node, ast.Constant)}
        for names in (called, used(body) | named):
            found = [name for name, node in self.definitions.items() if name in names and is_helper(node)]
            if helpers := [name for name in found if self.definitions[name] not in scaffolding]:
                return helpers
        return [half]

    def imports(self, names: Iterable[str]) -> list[str]:
        """The imports, as far as these definitions need them, as one text; none where they need none."""
        nodes = [node for name in names for node in (*self.needed(name), self.definitions[name])]
        uses = {name for node in nodes for name in used(node)}
        lines = [line for node in self.tree.body if (line := import_of(node, uses))]
        return ["\n".join(lines)] if lines else []

    def text(self, node: ast.stmt) -> str:
        """Its lines, without what the kit puts above a function."""
        own = [call for call in getattr(node, "decorator_list", ()) if not rules.is_declaration(call)]
        first = min([node.lineno, *(call.lineno for call in own)])
        return "\n".join(self.lines[first - 1 : node.end_lineno])

    def program(self, half: rules.Half) -> str:
        call = self.definitions[half.name]
        assert isinstance(call, ast.Assign) and isinstance(call.value, ast.Call)
        assert isinstance(call.value.args[0], ast.Call)
        source = call.value.args[0].args[0]
        while isinstance(source, ast.Name):
            named = self.definitions[source.id]
            assert isinstance(named, ast.Assign)
            source = named.value
        return str(ast.literal_eval(source)).strip()


def defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign):
        return [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return []


def used(node: ast.stmt) -> set[str]:
    """The names that it uses: in its body, its defaults, and what is put above it, except by the kit."""
    parts: list[ast.AST] = [node]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        parts = [*node.body, node.args, *(call for call in node.decorator_list if not rules.is_declaration(call))]
    return {name.id for part in parts for name in ast.walk(part) if isinstance(name, ast.Name)}


def is_helper(node: ast.stmt) -> bool:
    """Whether it is a function or class that declares no outcome."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return isinstance(node, functions) and not any(map(rules.is_declaration, node.decorator_list))


def is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def import_of(node: ast.stmt, needed: set[str]) -> str:
    """The import, as far as something of it is needed."""
    if not isinstance(node, (ast.Import, ast.ImportFrom)) or getattr(node, "module", None) == "kit":
        return ""
    names = [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) in needed]
    listed = ", ".join(f"{alias.name} as {alias.asname}" if alias.asname else alias.name for alias in names)
    if not names:
        return ""
    return f"from {node.module} import {listed}" if isinstance(node, ast.ImportFrom) else f"import {listed}"


# ------------------------------------------------------------------------------------------- an outcome in words


def label(rule: rules.Rule, half: rules.Half) -> str:
    """A comment that says which half this is and how it ends."""
    outcome = ast.parse(f"({rule.text(half.outcome)})", mode="eval")  # in brackets, as its lines are indented
    return f"# {half.kind}: {words(Constants(Recipe.of(rule).definitions).visit(outcome).body)}"


class Constants(ast.NodeTransformer):
    """Puts a constant's text in the place of its name."""

    def __init__(self, definitions: dict[str, ast.stmt]) -> None:
        self.definitions = definitions

    def visit_Name(self, node: ast.Name) -> ast.expr:
        named = self.definitions.get(node.id)
        return named.value if isinstance(named, ast.Assign) and isinstance(named.value, ast.Constant) else node


def words(outcome: ast.expr) -> str:
    """A declared outcome as a phrase, such as "raises OSError: Bad file; leaves 1 process"."""
    if isinstance(outcome, ast.BinOp):
        between = "; " if isinstance(outcome.op, ast.BitAnd) else ", or "
        return words(outcome.left) + between + words(outcome.right)
    assert isinstance(outcome, ast.Call) and isinstance(outcome.func, ast.Name), ast.dump(outcome)
    options = {str(word.arg): word.value for word in outcome.keywords}
    values = [*outcome.args, *options.values()]
    texts = [
        " ".join(str(value.value).split()) if isinstance(value, ast.Constant) else ast.unparse(value)
        for value in values
    ]
    phrases = {
        "hangs": "hangs at {0}",
        "spins": "never ends, repeats {0}",
        "returns": "returns {repr}",
        "raises": "raises {0}: {1}" if len(texts) > 1 and texts[1] else "raises {0}",
        "dies": "dies of {0}",
        "exits": "exits with status {0}",
        "prints": "prints {0}",
        "leaves": "leaves {left}",
    }
    return phrases[outcome.func.id].format(*texts, repr=ast.unparse(values[0]), left=left(outcome)) + version_range(
        options
    )


def left(outcome: ast.Call) -> str:
    """What leaves(...) counts, such as "2 processes"."""
    plurals = {"processes": "process", "files": "file", "segments": "segment"}
    numbers = [("processes", node) for node in outcome.args]
    numbers += [(str(word.arg), word.value) for word in outcome.keywords]
    counted = [(ast.unparse(node), name) for name, node in numbers]
    return " and ".join(f"{number} {plurals.get(name, name) if number == '1' else name}" for number, name in counted)


def version_range(options: dict[str, ast.expr]) -> str:
    """Such as " (from 3.10)"; nothing for an outcome on all versions."""
    words = (("since", "from"), ("until", "to"))
    ends = [f"{word} {'.'.join(map(str, ast.literal_eval(options[name])))}" for name, word in words if name in options]
    return f" ({' '.join(ends)})" if ends else ""
