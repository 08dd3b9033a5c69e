"""Mutants of the core and of the adapters: does a test of their line kill them?

    python -m tests.integration.mutants --record  runs all tests once for their lines: half an hour
    python -m tests.integration.mutants           judges 120 of the core, 40 of adapters: to 3 hours
    python -m tests.integration.mutants --seed 1 --core 9 --adapters 0

A mutant is a module with one change: a comparison, condition, number or sign, or a statement left
out. Log lines, annotations and texts stay: no promise depends on them. It is written into a copy of
both packages. `make test` judges it, the fastest tests first, then the same files at full length,
each for minutes. A test that also fails without the mutant kills nothing.

Verdicts are kept, so the same command resumes. A survivor is an equivalent program or a gap in the
tests: read it.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, final

from coverage import CoverageData

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".tidegate" / "mutants"
SOURCES: Final = {"core": ROOT / "src" / "core", "adapters": ROOT / "src" / "adapters"}
PATIENCE_S: Final = {"make test": 150.0, "at length": 240.0}
_MEASURE: Final = """[run]
source_pkgs = tidegate, tidegate_adapters
parallel = true
patch = subprocess
dynamic_context = test_function
data_file = {folder}/data
"""
_PYTEST: Final = ("-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "--maxfail", "1", "--timeout", "120")
_UNSAID: Final = {"say", "_say", "_say_of", "log", "assert_never"}
"""Calls that inform people or mypy."""
_OTHER: Final[Mapping[type[ast.AST], type[ast.AST]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip


@final
class Mutant(NamedTuple):
    """A place of a module: the node in a `field` of its `parent`, and the replacement `other`."""

    module: str
    tree: ast.Module
    parent: ast.AST
    field: str
    node: ast.AST
    other: ast.AST

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {_short(self.node)} -> {_short(self.other)}"

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 0)

    @property
    def text(self) -> str:
        held = getattr(self.parent, self.field)
        changed = [self.other if each is self.node else each for each in held] if isinstance(held, list) else self.other
        setattr(self.parent, self.field, changed)
        try:
            return ast.unparse(ast.fix_missing_locations(self.tree))
        finally:
            setattr(self.parent, self.field, held)


def others(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _OTHER:
            yield _with(node, ops=[_OTHER[type(op)]()])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _OTHER:
            yield _with(node, op=_OTHER[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Continue() if not _is_said(node):
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))


def _is_said(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    names = (getattr(call.func, "id", ""), getattr(call.func, "attr", "")) if isinstance(call, ast.Call) else ()
    return not _UNSAID.isdisjoint(names)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def mutants(module: str, source: str) -> Iterator[Mutant]:
    tree = ast.parse(source)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        for statement in function.body:  # neither annotations nor decorators
            yield from _of(module, tree, statement, function, "body")


def _of(module: str, tree: ast.Module, node: ast.AST, parent: ast.AST, field: str) -> Iterator[Mutant]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Assert) or _is_said(node):
        return
    for other in others(node):
        yield Mutant(module, tree, parent, field, node, other)
    for name, value in ast.iter_fields(node):
        if name != "annotation":
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    yield from _of(module, tree, each, node, name)


def _short(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).partition("\n")[0][:100]


# --- which tests execute a line ------------------------------------------------------------------------------------------


def record() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    settings = FOLDER / "coveragerc"
    settings.write_text(_MEASURE.format(folder=FOLDER), encoding="utf-8")
    command = ("run", "--rcfile", str(settings), "-m", "pytest", "-q", "-n", "4", "--dist", "loadgroup")
    subprocess.run([sys.executable, "-m", "coverage", *command], check=False, cwd=ROOT)
    subprocess.run([sys.executable, "-m", "coverage", "combine", "--quiet", "--rcfile", str(settings)], check=True)
    data = CoverageData(str(FOLDER / "data"))
    data.read()
    executed = {
        str(Path(file).relative_to(source)): {
            str(line): sorted(filter(None, map(_test_of, contexts)))
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
        for source in SOURCES.values()
        if Path(file).is_relative_to(source)
    }
    (FOLDER / "lines.json").write_text(json.dumps(executed), encoding="utf-8")


def _test_of(context: str) -> str:
    """`tests.folder.test_file.test_name` -> its id."""
    module, _, name = context.rpartition(".")
    return f"{module.replace('.', '/')}.py::{name}" if re.match(r"tests\..*\.test_", context) else ""


def executed() -> Mapping[str, Mapping[int, Sequence[str]]]:
    kept = json.loads((FOLDER / "lines.json").read_text(encoding="utf-8"))
    return {module: {int(line): tests for line, tests in lines.items()} for module, lines in kept.items()}


# --- the sample ---------------------------------------------------------------------------------------------------------


def sample(seed: int, count: int, source: Path, lines: Mapping[str, Mapping[int, Sequence[str]]]) -> list[Mutant]:
    known = [
        each
        for file in sorted(source.rglob("*.py"))
        if "specimens" not in f"{file}"
        if (tests := lines.get(module := str(file.relative_to(source))))
        for each in mutants(module, file.read_text("utf-8"))
        if tests.get(each.line)
    ]
    return Random(f"mutants {seed}").sample(known, min(count, len(known)))


# --- judging ------------------------------------------------------------------------------------------------------------


def failing(tests: Sequence[str], packages: Path | None, patience_s: float, **environ: str) -> str:
    """The first test that fails, or hangs with all others; "" for none in time."""
    path = [*([] if packages is None else [str(packages)]), str(ROOT), *sys.path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), **environ}
    with subprocess.Popen(
        [sys.executable, *_PYTEST, *tests],
        cwd=ROOT,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            said, _ = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # pytest ends its servers
            said, _ = process.communicate()
            return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[|@| |$)", said, re.MULTILINE)
    return found[1] if found else "" if process.returncode == 0 else "pytest"


def killer(mutant: Mutant, packages: Path, tests: Sequence[str], long_s: Mapping[str, float]) -> tuple[str, str]:
    """The judge and the test that kill it; two empty texts for none."""
    ordered = sorted(tests, key=lambda each: long_s.get(each, 1.0))
    files = sorted({each.partition("::")[0] for each in tests})
    (packages / mutant.module).write_text(mutant.text, "utf-8")
    for judge, asked, environ in (
        ("make test", ordered, {}),
        ("at length", files, {"TIDEGATE_AT_LENGTH": "1"}),
    ):
        found = failing(asked, packages, PATIENCE_S[judge], **environ)
        if found and (found == "pytest" or not failing([found], None, PATIENCE_S[judge], **environ)):
            return judge, found
    return "", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--core", type=int, default=120)
    parser.add_argument("--adapters", type=int, default=40)
    told = parser.parse_args()
    if told.record:
        record()
        return 0
    lines = executed()
    durations = json.loads((ROOT / "tests" / "durations.json").read_text(encoding="utf-8"))
    long_s = {f"{file}::{name}": took for file, names in durations.items() for name, took in names.items()}
    kept = FOLDER / f"judged-{told.seed}.jsonl"
    judged: dict[str, list[str]] = dict(map(json.loads, kept.read_text("utf-8").splitlines())) if kept.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        packages = Path(folder)
        for source in SOURCES.values():
            shutil.copytree(source, packages, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        for part, count in (("adapters", told.adapters), ("core", told.core)):
            for mutant in sample(told.seed, count, SOURCES[part], lines):
                if str(mutant) not in judged:
                    judged[str(mutant)] = [*killer(mutant, packages, lines[mutant.module][mutant.line], long_s)]
                    shutil.copy(SOURCES[part] / mutant.module, packages / mutant.module)
                    with kept.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([str(mutant), judged[str(mutant)]]) + "\n")
                judge, test = judged[str(mutant)]
                print(f"{judge or 'SURVIVES':9} {mutant} {test}", flush=True)
    by = [judge for judge, _ in judged.values()]
    print(*(f"{by.count(judge)} {judge or 'survive'}" for judge in ("make test", "at length", "")), sep=", ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
