"""Finds what of the running program is not in its source: what was replaced, and plug-ins in its tables.

`foltr_research.simulation.digests.used_code` reads files, so it does not see them.
"""

import dataclasses
import functools
import importlib
import sys
from collections.abc import Iterable, Mapping
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from foltr_research.simulation.digests.whole import digest_of_whole

_OURS = frozenset({"foltr", "foltr_research"})
_LIBRARIES = frozenset({"llvmlite", "numba", "numpy", "pydantic", "pydantic_core", "scipy", *sys.stdlib_module_names})
# Deeper than any table of the program: a method's record has functions in its fields.
_DEPTH = 4


class Binding(NamedTuple):
    """What a module's source binds to a name.

    Attributes:
        origin: module and name of the function or class; None for anything else.
        literal: a tuple of its value if it is a literal, else an empty one.
    """

    module: str
    name: str
    origin: tuple[str, str] | None
    literal: tuple[object, ...]


def outside_code(bindings: Iterable[Binding], apart: frozenset[int] = frozenset()) -> dict[str, str]:
    """Return 16 hexadecimal digits for each name that is bound to code or a value that is not in the source.

    Args:
        apart: the ids of objects in tables that are not looked at.
    """
    found = {}
    for module, name, origin, literal in bindings:
        value = getattr(importlib.import_module(module), name, None)
        replaced = (origin is not None and _origin(value) != origin) or (literal and (value,) != literal)
        packages = _packages(value, _DEPTH, apart)
        if replaced or packages:
            found[f"{module}.{name}"] = digest_of_whole(value, packages, apart)[:16]
    return found


def digest_of_object(value: object) -> str:
    """Return 32 hexadecimal digits of an object's code, its values, and what of its package it refers to."""
    return digest_of_whole(value, _packages(value, _DEPTH))


def _origin(value: object) -> tuple[str, str]:
    value = _unwrapped(value)
    return str(getattr(value, "__module__", "")), str(getattr(value, "__qualname__", ""))


def _package(value: object) -> str:
    value = _unwrapped(value)
    return _package_of(value) if isinstance(value, FunctionType) else _origin(value)[0].partition(".")[0]


def _package_of(function: FunctionType) -> str:
    # A decorator may have given it another function's __module__.
    return str(function.__globals__.get("__name__")).partition(".")[0]


def _unwrapped(value: Any) -> Any:
    """Return the function behind a compiled one, or one that ours or a library has decorated."""
    while not isinstance(value, type) and (
        inner := getattr(value, "__wrapped__", None) or getattr(value, "py_func", None)
    ):
        if isinstance(value, FunctionType) and _package_of(value) not in _OURS | _LIBRARIES:
            break
        value = inner
    return value


def _packages(value: object, depth: int, apart: frozenset[int] = frozenset()) -> frozenset[str]:
    """Return the other packages whose code a value is, or has in its methods, entries or fields."""
    if id(value) in apart:
        return frozenset()
    value = _unwrapped(value)
    if isinstance(value, FunctionType | type) and _package(value) not in _OURS | _LIBRARIES:
        return frozenset({_package(value)})
    if isinstance(value, type):
        inner = [one for one in vars(value).values() if isinstance(one, FunctionType)] if _is_ours(value) else []
        return frozenset().union(*(_packages(one, 0, apart) for one in inner))
    return frozenset().union(*(_packages(one, depth - 1, apart) for one in _parts(value) if depth))


def _is_ours(value: object) -> bool:
    return _package(value) in _OURS


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return (*value.keys(), *value.values())
    if isinstance(value, tuple) or type(value) is list:
        return value
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, MethodType):
        return (value.__func__, value.__self__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return ()
