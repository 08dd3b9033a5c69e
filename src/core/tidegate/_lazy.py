"""The names that a package exports, each loaded on first use (PEP 562; SPEC 1 of Scientific Python).

    if TYPE_CHECKING:
        from tidegate.leases.lease import Lease
    else:
        __getattr__ = lazy(__name__)

    __all__ = ["Lease"]

A package that imported what it exports would load all of its modules for each of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from inspect import getsource
from sys import modules


def lazy(package: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a package: it loads a name from where type checkers import it."""

    def load(name: str) -> object:
        if name not in vars(modules[package])["__all__"]:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, of_module = _imports(package)[name]
        return getattr(import_module(module), of_module)

    return load


@cache
def _imports(package: str) -> Mapping[str, tuple[str, str]]:
    blocks = [each for each in ast.parse(getsource(modules[package])).body if isinstance(each, ast.If)]
    imports = [each for block in blocks for each in block.body if isinstance(each, ast.ImportFrom)]
    return {name.asname or name.name: (str(each.module), name.name) for each in imports for name in each.names}
