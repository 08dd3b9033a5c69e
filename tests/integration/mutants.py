"""Mutants of the worker's adapter: how many of a sample do its runs by seed and its fast tests kill?

    python -m tests.integration.mutants                              a sample of 60; a line for each, those that survive again at the end
    python -m tests.integration.mutants --seed 1 --count 10          another one
    python -m tests.integration.mutants --minutes 20                 as many of the sample, in its order, as there is time for

A mutant is a module of the adapter with one place changed: a comparison, a condition, a number, a sign, or a statement left out.
Lines of the log, annotations and texts are not changed, for nothing that the worker promises hangs on them. It is written
into a copy of the package, and judged by processes of their own, each with a time-out of three times what it takes without one.
The exit code is 1 where fewer than 90 % are killed. A survivor is either the same program, or what no test looks at: read it.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, final

import tidegate_adapters

MODULES: Final = (
    "beginnings", "committing", "exactly_once", "handlers", "kafka", "kafka_member", "kafka_ports", "namesakes", "record_fields",
    "runtime", "sending", "tallies", "undone", "user_code", "worker_monitor", "worker_running", "worker_settings",
)  # fmt: skip
SEEDS: Final = (
    "import gc, logging, sys; from tests.integration.kafka_runs import *; logging.disable(50); gc.freeze();"
    " sys.exit(found(range(200), (*KINDS, *KINDS, *ONCE, *LATEST, *GROWS, *RECREATED, *NAMED, *ORDERED, *HELD)) is not None)"
)
TESTS: Final = (
    "simulated_worker", "worker_parts", "worker_failures", "worker_logs", "runtime", "runtime_reducers", "handlers", "embedded_log",
    "monitor", "namesakes", "kafka_worker", "kafka_faults", "configuration",
)  # fmt: skip
JUDGES: Final[Mapping[str, Sequence[str]]] = {
    "seeds": ("-c", SEEDS),
    "tests": (
        *("-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not kafka and not mongo"),
        *(f"tests/integration/test_{name}.py" for name in TESTS),
    ),
}
LEAST: Final = 0.9
_UNSAID: Final = {"say", "_say", "_say_of", "log", "assert_never"}
"""Calls that say something to people, or to mypy."""
_OTHER: Final[Mapping[type[ast.AST], type[ast.AST]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip


@final
class Mutant(NamedTuple):
    """A place of a module, and what stands there instead.

    Attributes:
        module: Its name.
        tree: All of it, as it is.
        parent: Below which node the place is, and in which field.
        field: The same.
        node: What stands there.
        other: What is to.
    """

    module: str
    tree: ast.Module
    parent: ast.AST
    field: str
    node: ast.AST
    other: ast.AST

    def __str__(self) -> str:
        return f"{self.module}.py:{getattr(self.node, 'lineno', 0)}: {_short(self.node)} -> {_short(self.other)}"

    @property
    def text(self) -> str:
        """The module with it."""
        held = getattr(self.parent, self.field)
        changed = [self.other if each is self.node else each for each in held] if isinstance(held, list) else self.other
        setattr(self.parent, self.field, changed)
        try:
            return ast.unparse(ast.fix_missing_locations(self.tree))
        finally:
            setattr(self.parent, self.field, held)


def others(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
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
    """Whether it is a line of the log, or of types."""
    call = node.value if isinstance(node, ast.Expr) else None
    names = (getattr(call.func, "id", ""), getattr(call.func, "attr", "")) if isinstance(call, ast.Call) else ()
    return not _UNSAID.isdisjoint(names)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its nodes."""
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


def sample(seed: int, count: int, modules: Sequence[str] = MODULES) -> list[Mutant]:
    """So many of all mutants, by a seed."""
    folder = Path(tidegate_adapters.__file__).parent
    known = [each for name in modules for each in mutants(name, (folder / f"{name}.py").read_text("utf-8"))]
    return Random(f"mutants {seed}").sample(known, min(count, len(known)))


def killed_by(package: Path, mutant: Mutant | None, patience_s: Mapping[str, float]) -> tuple[str, Mapping[str, float]]:
    """Which judge has found it wrong, or has not ended in time; "" for none. And how long each has taken."""
    if mutant is not None:
        (package / f"{mutant.module}.py").write_text(mutant.text, "utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package.parent), str(Path.cwd()), *sys.path])}
    took_s = dict[str, float]()
    for name, arguments in JUDGES.items():
        began_s = time.monotonic()
        try:
            command, patience = (sys.executable, *arguments), patience_s[name]
            code = subprocess.run(command, env=env, capture_output=True, timeout=patience, check=False).returncode
        except subprocess.TimeoutExpired:
            code = -1
        took_s[name] = time.monotonic() - began_s
        if code:
            return name, took_s
    return "", took_s


def main() -> int:
    """Judge a sample, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=600.0)
    told = parser.parse_args()
    ends_s, survivors, judged = time.monotonic() + told.minutes * 60, list[Mutant](), 0
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "tidegate_adapters"
        shutil.copytree(Path(tidegate_adapters.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
        by, usual_s = killed_by(package, None, dict.fromkeys(JUDGES, 600.0))
        assert not by, f"{by} fail without a mutant"
        print(", ".join(f"{name} take {usual:.1f} s" for name, usual in usual_s.items()), flush=True)
        for mutant in sample(told.seed, told.count):
            if time.monotonic() > ends_s:
                break
            by, _ = killed_by(package, mutant, {name: 10 + 3 * usual for name, usual in usual_s.items()})
            shutil.copy(Path(tidegate_adapters.__file__).parent / f"{mutant.module}.py", package)
            judged += 1
            survivors += [] if by else [mutant]
            print(f"{by or 'SURVIVES':8} {mutant}", flush=True)
    killed = judged - len(survivors)
    print(*(f"survives: {each}" for each in survivors), f"{killed} of {judged} are killed", sep="\n")
    return 0 if killed >= LEAST * judged else 1


if __name__ == "__main__":
    sys.exit(main())
