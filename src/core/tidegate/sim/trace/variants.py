"""Faulty variants of running code: replace text of a module and execute what depends on it again.

A specimen states only the difference, so it cannot drift from its original: a text that is missing
or occurs twice is refused. A variant is made when its specimen is explored, not at import.

    variant(Recoverer, ("await self._move(step)", "await self._force(step)"))
    variant(Recoverer, plan_recovery=variant(plan_recovery, ("age >= limit", "age > limit")))
    variant(increments, ("Gt(COUNT, 0)", "Gt(COUNT, 1)")).increment

Laws
    VT1  A variant without a replacement equals its original.
    VT2  Each statement of the module that uses a replaced one, directly or not, is executed again.
         All others stay, so that results have the classes that other code compares with.
    VT3  The original module does not change.

Known not to work
    - Another module that imports the original keeps using it: pass the variant by its name, as
      above.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Final, Protocol, TypeAlias, TypeVar, cast

from tidegate.model.errors import Misuse

T = TypeVar("T")
Recipe: TypeAlias = tuple[str, CodeType, tuple[tuple[str, object], ...]]
"""A module, its code to execute again, and the names to rebind."""
_RECIPE: Final = "__recipe__"
_WORD: Final = re.compile(r"\w+")


class _Loader(Protocol):
    def get_source(self, fullname: str) -> str | None: ...


def variant(of: T, *replacements: tuple[str, str], **names: object) -> T:
    """The class, function or module with other source text.

    Args:
        of: The original.
        replacements: Pairs of a text that occurs exactly once in the module, and its replacement.
        names: Values for names of the module, for example variants of its imports.

    Raises:
        Misuse: A text does not occur exactly once, or `of` uses no replacement.
    """
    module = of if isinstance(of, ModuleType) else sys.modules[getattr(of, "__module__", "")]
    code, bound = _compiled(module.__name__, replacements, frozenset(names))
    made = made_of(module.__name__, code, tuple(names.items()))
    if of is module:
        # Under the same name, a second process would import the original.
        made.__name__ += " (a variant)"
        return cast("T", made)
    name: str = getattr(of, "__qualname__", "")
    if (replacements or names) and name not in bound:
        raise Misuse(f"{name} does not use what is replaced in {module.__name__}", todo="vary what uses it")
    return cast("T", getattr(made, name))


def made_of(module: str, code: CodeType, names: tuple[tuple[str, object], ...]) -> ModuleType:
    """A copy of the module in which the code is executed again and the names are rebound."""
    made = ModuleType(module)
    vars(made).update(vars(import_module(module)), **dict(names))
    vars(made)[_RECIPE] = module, code, names
    exec(code, vars(made))  # noqa: S102  the module's own text, with the specimen's replacements
    return made


def recipe_of(item: object) -> tuple[Recipe, str] | None:
    """The recipe of a variant's function, class or module, and its name; None for any
    other object.
    """
    if isinstance(item, ModuleType):
        return (vars(item)[_RECIPE], "") if _RECIPE in vars(item) else None
    name: str = getattr(item, "__qualname__", "")
    if getattr(sys.modules.get(getattr(item, "__module__", "")), name, None) is item:
        return None
    functions = vars(item).values() if isinstance(item, type) else (item,)
    made = next(
        (each.__globals__ for each in functions if isinstance(each, FunctionType) and _RECIPE in each.__globals__), None
    )
    return (made[_RECIPE], name) if made is not None and made.get(name) is item else None


@cache
def _compiled(
    name: str, replacements: tuple[tuple[str, str], ...], names: frozenset[str]
) -> tuple[CodeType, frozenset[str]]:
    """The code to execute again, and the names that it binds."""
    module = sys.modules[name]
    source = cast("_Loader", module.__loader__).get_source(name) or ""
    before = _statements(source)
    for right, wrong in replacements:
        if (count := source.count(right)) != 1:
            raise Misuse(f"{name} says {count} times {right!r}", todo="replace what it says once")
        source = source.replace(right, wrong)
    texts = _texts(source)
    again = _dependents(texts, {each for each, text in texts.items() if text not in before}, {*names})
    future: list[ast.stmt] = [
        each for each in texts if isinstance(each, ast.ImportFrom) and each.module == "__future__"
    ]
    code = compile(ast.Module([*future, *again], []), module.__file__ or "", "exec", dont_inherit=True)
    return code, frozenset(bound for each in again for bound in _bound(each))


@cache
def _statements(source: str) -> frozenset[str]:
    return frozenset(_texts(source).values())


def _texts(source: str) -> dict[ast.stmt, str]:
    lines, body = source.splitlines(), ast.parse(source).body
    first = [min([each.lineno, *(node.lineno for node in _decorators(each))]) for each in body]
    return {each: "\n".join(lines[at - 1 : each.end_lineno]) for each, at in zip(body, first, strict=True)}


def _decorators(statement: ast.stmt) -> list[ast.expr]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return statement.decorator_list
        case _:
            return []


def _dependents(texts: Mapping[ast.stmt, str], changed: set[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """The changed statements and those that use them, directly or not, in source order."""
    words = {each: {*_WORD.findall(text)} for each, text in texts.items()}
    while True:
        names = names | {bound for each in changed for bound in _bound(each)}
        left = (each for each in texts if each not in changed and not words[each].isdisjoint(names))
        found = changed | {each for each in left if not names.isdisjoint(_used(each))}
        if found == changed:
            return [each for each in texts if each in changed]
        changed = found


def _used(node: ast.AST) -> Iterator[str]:
    """The names that it looks up; annotations are not evaluated."""
    if isinstance(node, ast.Name):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, ast.AST):
                    yield from _used(each)


def _bound(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case _:  # an import, or an expression
            pass
