"""The rules of the house, each with a planted violation that proves the rule can fail.

A rule reads one parsed source file and names what breaks it. Rules about running code (what an import loads, what a
package exports) are tests of their own further down.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path

import pytest

import hush

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "hush"

# Each row may import from the rows before it. Row 0 of the design is three files that stand on each other.
ROWS: tuple[frozenset[str], ...] = (
    frozenset({"errors"}),
    frozenset({"_check", "_digest"}),
    frozenset({"privacy"}),
    frozenset({"events", "rng", "engines"}),
    frozenset({"accounting", "gradients", "mechanisms", "sampling", "data", "ensembles"}),
    frozenset({"ledger", "audit"}),  # an audit takes functions and knows no training; training uses it
    frozenset({"training", "pate", "linear", "attacks", "features"}),
    frozenset({"prompts", "federated"}),
    frozenset({"report"}),
    frozenset({"planner"}),
    frozenset({"cli"}),
)
RANK = {room: row for row, rooms in enumerate(ROWS) for room in rooms}

BANNED_FILES = frozenset({"util", "utils", "helper", "helpers", "common", "misc"})
BANNED_PARAMETERS = frozenset({"eps", "sigma", "sample_rate", "max_grad_norm"})
NEVER_DEFAULTED = frozenset({"epsilon", "delta", "clip_norm"})
MOST_LINES, MOST_FUNCTION_LINES, USUAL_FUNCTION_LINES = 400, 80, 40

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file of the package, parsed."""

    name: str  # below the package's folder, with forward slashes
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        return self.name.split("/")[0].removesuffix(".py")

    def functions(self) -> Iterator[tuple[str, Function]]:
        """All functions and methods with their dotted names."""
        yield from _functions(self.tree, "")

    def public_functions(self) -> Iterator[tuple[str, Function]]:
        """Those whose dotted name has no private part; constructors of public classes are public."""
        for name, function in self.functions():
            if not any(part.startswith("_") and part != "__init__" for part in name.split(".")):
                yield name, function

    def public_fields(self) -> Iterator[tuple[str, ast.AnnAssign]]:
        """Annotated names in the bodies of public classes: the parameters of dataclasses."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                for item in node.body:
                    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                        yield node.name, item


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield prefix + child.name, child
            yield from _functions(child, f"{prefix}{child.name}._local.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def sources(package: Path = PACKAGE) -> list[Source]:
    files = sorted(package.rglob("*.py"))
    return [Source(path.relative_to(package).as_posix(), path.read_text(encoding="utf-8")) for path in files]


# Rules: a source file -> what breaks the rule, one line each ---------------------------------------------------


def imports_go_down(source: Source) -> Iterator[str]:
    if source.name == "__init__.py":
        return  # the export list: it looks names up when they are used
    if source.room not in RANK:
        yield f"{source.name}: give {source.room!r} a row in ROWS"
        return
    for room in sorted(set(_imported_rooms(source.tree))):
        if room != source.room and not RANK.get(room, 99) < RANK[source.room]:
            yield f"{source.name} imports {room}"


def _imported_rooms(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("hush."))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "hush":
            names = [alias.name for alias in node.names if not alias.name.startswith("__")]  # not __version__
            yield from (hush._HOME.get(name, name).removeprefix("hush.") for name in names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("hush."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"hush(\.[a-z_]+)+", str(node.value)):
            yield str(node.value).split(".")[1]  # import_module("hush.x.y")


def no_relative_imports(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield f"{source.name}:{node.lineno} has a relative import"


def no_banned_names_of_files(source: Source) -> Iterator[str]:
    for part in source.name.removesuffix(".py").split("/"):
        if part in BANNED_FILES:
            yield f"{source.name}: {part!r} says nothing about what is inside"


def files_are_short(source: Source) -> Iterator[str]:
    if (lines := source.text.count("\n")) > MOST_LINES:
        yield f"{source.name} has {lines} lines, more than {MOST_LINES}"


def functions_are_short(source: Source) -> Iterator[str]:
    for name, function in source.functions():
        if (lines := _length(function)) > MOST_FUNCTION_LINES:
            yield f"{source.name}: {name} has {lines} lines, more than {MOST_FUNCTION_LINES}"


def _length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def randomness_only_in_rng(source: Source) -> Iterator[str]:
    if source.name == "rng.py":
        return
    for node in ast.walk(source.tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        used = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        for name in (*modules, used):
            if _is_global_random(name):
                yield f"{source.name}:{getattr(node, 'lineno', 0)} uses {name}; take an Rng instead"


def _is_global_random(name: str) -> bool:
    if name.endswith("random.Generator"):  # the type of a stream that was handed in
        return False
    pattern = r"random(\..*)?|(np|numpy)\.random\..*|torch\.((cuda|mps)\.)?(manual_seed(_all)?|seed|random(\..*)?)"
    return re.fullmatch(pattern, name) is not None


def no_open_ended_keywords(source: Source) -> Iterator[str]:
    for name, function in source.public_functions():
        if function.args.kwarg is not None:
            yield f"{source.name}: {name} takes **{function.args.kwarg.arg}"


def no_default_for_what_costs_privacy(source: Source) -> Iterator[str]:
    for name, function in source.public_functions():
        for parameter in _defaulted(function.args):
            if parameter in NEVER_DEFAULTED:
                yield f"{source.name}: {name} has a default for {parameter}"
    for name, field in source.public_fields():
        given = field.value is not None and ast.unparse(field.value) != "None"
        if given and ast.unparse(field.target) in NEVER_DEFAULTED:
            yield f"{source.name}: {name} has a default for {ast.unparse(field.target)}"


def _defaulted(arguments: ast.arguments) -> Iterator[str]:
    """Parameters with a value of their own; None stands for "not given" and is no value."""
    positional = [*arguments.posonlyargs, *arguments.args]
    last = positional[len(positional) - len(arguments.defaults) :]
    pairs = [
        *zip(last, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for item, default in pairs:
        if default is not None and not (isinstance(default, ast.Constant) and default.value is None):
            yield item.arg


def no_banned_parameters(source: Source) -> Iterator[str]:
    for name, function in source.public_functions():
        for item in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]:
            if item.arg in BANNED_PARAMETERS:
                yield f"{source.name}: {name} has a parameter {item.arg!r}"
    for name, field in source.public_fields():
        if ast.unparse(field.target) in BANNED_PARAMETERS:
            yield f"{source.name}: {name} has a field {ast.unparse(field.target)!r}"


Rule = Callable[[Source], Iterator[str]]

# Each rule with files that break it, as (name, text).
RULES: tuple[tuple[Rule, tuple[tuple[str, str], ...]], ...] = (
    (
        imports_go_down,
        (
            ("accounting/planted.py", "from hush.ledger import Ledger"),
            ("accounting/planted.py", "from hush import Ledger"),
            ("accounting/planted.py", "import hush.cli.main"),
            ("accounting/planted.py", "def f():\n    from hush import gradients"),
            ("events/planted.py", "from hush.rng import Rng"),
            ("privacy.py", "import_module('hush.accounting.exact')"),
            ("unknown/planted.py", ""),
        ),
    ),
    (no_relative_imports, (("events/planted.py", "from . import kinds"),)),
    (no_banned_names_of_files, (("accounting/utils.py", ""), ("common/planted.py", ""))),
    (files_are_short, (("planted.py", "x = 1\n" * (MOST_LINES + 1)),)),
    (functions_are_short, (("planted.py", "def f():\n" + "    x = 1\n" * MOST_FUNCTION_LINES),)),
    (
        randomness_only_in_rng,
        (
            ("planted.py", "import random"),
            ("planted.py", "from random import gauss"),
            ("planted.py", "numpy.random.seed(0)"),
            ("planted.py", "from numpy.random import default_rng"),
            ("planted.py", "torch.manual_seed(0)"),
        ),
    ),
    (
        no_open_ended_keywords,
        (("planted.py", "def f(**options): ..."), ("planted.py", "class A:\n  def f(self, **k): ...")),
    ),
    (
        no_default_for_what_costs_privacy,
        (
            ("planted.py", "def f(event, *, delta=1e-5): ..."),
            ("planted.py", "class A:\n  def __init__(self, clip_norm=1.0): ..."),
            ("planted.py", "class A:\n  epsilon: float = 1.0"),
        ),
    ),
    (
        no_banned_parameters,
        (("planted.py", "def f(sigma): ..."), ("planted.py", "class A:\n  sample_rate: float")),
    ),
)
_NAMES = [rule.__name__ for rule, _ in RULES]


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES], ids=_NAMES)
def test_package_keeps_the_rule(rule: Rule) -> None:
    assert [line for source in sources() for line in rule(source)] == []


@pytest.mark.parametrize(("rule", "planted"), RULES, ids=_NAMES)
def test_planted_violations_are_caught(rule: Rule, planted: tuple[tuple[str, str], ...]) -> None:
    for name, text in planted:
        assert list(rule(Source(name, text))) != [], text


def test_a_file_planted_in_a_tree_is_found(tmp_path: Path) -> None:
    (tmp_path / "accounting" / "exact").mkdir(parents=True)
    (tmp_path / "accounting" / "exact" / "planted.py").write_text("from hush.ledger import Ledger\n")
    found = [line for source in sources(tmp_path) for line in imports_go_down(source)]
    assert found == ["accounting/exact/planted.py imports ledger"]


def test_rules_let_good_code_pass() -> None:
    good = "from hush.errors import InvalidValue\n\ndef f(epsilon: float, rng: numpy.random.Generator) -> float: ...\n"
    assert [line for rule, _ in RULES for line in rule(Source("privacy.py", good))] == []


def test_nine_functions_in_ten_are_short() -> None:
    lengths = [_length(function) for source in sources() for _, function in source.functions()]
    assert sum(length <= USUAL_FUNCTION_LINES for length in lengths) >= 0.9 * len(lengths)


def test_names_of_other_files_say_something() -> None:
    files = [path for folder in ("tests", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.*")]
    assert [path.name for path in files if path.stem in BANNED_FILES] == []


# What imports load ---------------------------------------------------------------------------------------------

EPSILON = ["epsilon", "--noise-multiplier", "4", "--sampling-prob", "0.01", "--steps", "10000", "--delta", "1e-5"]
COMMAND = f"""
from hush.cli.main import main
sys.argv = {["hush", *EPSILON]!r}
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


def loads_torch(code: str, *search: Path) -> bool:
    script = f"import sys\n{code}\nprint('torch' in sys.modules, file=sys.stderr)"
    path = os.pathsep.join(map(str, search))
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.split()[-1] == "True"


@pytest.mark.parametrize(
    "code",
    ["import hush", "import hush.events", "import hush.accounting", "import hush.ledger", "import hush.rng", COMMAND],
    ids=["hush", "events", "accounting", "ledger", "rng", "hush epsilon"],
)
def test_torch_is_not_loaded(code: str) -> None:
    assert not loads_torch(code)


def test_loading_torch_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")  # a stand-in: the real one takes seconds
    assert loads_torch("import hush.accounting\nimport torch", tmp_path)


# Export lists --------------------------------------------------------------------------------------------------


def export_key(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, each by the alphabet: the order that ruff keeps (RUF022)."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


@pytest.mark.parametrize("name", ["hush", "hush.accounting", "hush.events", "hush.ledger"])
def test_export_lists_are_sorted_and_resolve(name: str) -> None:
    module = import_module(name)
    exported = list(module.__all__)
    assert exported == sorted(set(exported), key=export_key)
    assert [item for item in exported if getattr(module, item, None) is None] == []


def test_an_unsorted_export_list_would_be_seen() -> None:
    assert sorted(["guarantee", "METHODS", "Odometer"], key=export_key) == ["METHODS", "Odometer", "guarantee"]
