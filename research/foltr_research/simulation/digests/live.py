"""Finds what of the running program is not in its source: what was replaced, and plug-ins in its tables.

`foltr_research.simulation.digests.used_code` reads files, so it does not see them. They are described by their bytecode
and by what of their own package that refers to.
"""

import dataclasses
import functools
import hashlib
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

_OURS = frozenset({"foltr", "foltr_research"})
_LIBRARIES = frozenset({"llvmlite", "numba", "numpy", "pydantic", "pydantic_core", "scipy", *sys.stdlib_module_names})
# Deeper than any table of the program: a method's record has functions in its fields.
_DEPTH = 4
_PLAIN = (bool, int, float, str, bytes, type(None))


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
            text = "\n".join(_described(value, packages, set()))
            found[f"{module}.{name}"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return found


def digest_of_object(value: object) -> str:
    """Return 32 hexadecimal digits of an object's code, its values, and what of its package it refers to."""
    text = "\n".join(_described(value, _packages(value, _DEPTH), set()))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _origin(value: object) -> tuple[str, str]:
    value = _unwrapped(value)
    return str(getattr(value, "__module__", "")), str(getattr(value, "__qualname__", ""))


def _package(value: object) -> str:
    return _origin(value)[0].partition(".")[0]


def _unwrapped(value: Any) -> Any:
    """Return the function behind a decorated or compiled one."""
    while not isinstance(value, type) and (
        inner := getattr(value, "__wrapped__", None) or getattr(value, "py_func", None)
    ):
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


def _described(value: object, packages: frozenset[str], seen: set[int]) -> Iterator[str]:
    """Yield lines that are the same in every process for the same code.

    Args:
        packages: whose code is described. Of others the names do: of ours there is the source.
    """
    value = _unwrapped(value)
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    if isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
        return
    if isinstance(value, set | frozenset):
        yield repr(sorted(map(repr, value)))
        return
    yield f"{type(value).__name__} {_origin(value)}"
    if id(value) in seen:
        return
    seen.add(id(value))
    parts = _parts(value)
    if isinstance(value, FunctionType) and _package(value) in packages:
        yield from _bytecode(value.__code__)
        cells = _named_values(value)
        parts = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *cells)
    elif isinstance(value, type) and (_package(value) in packages or _packages(value, 1)):
        parts = (
            *value.__bases__,
            *(one for name, one in vars(value).items() if isinstance(one, FunctionType) or not name.startswith("__")),
        )
    for part in parts:
        yield from _described(part, packages, seen)


def _named_values(function: FunctionType) -> list[object]:
    """Return what a function's free and global names are bound to, in the order of the names."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    bound = {**function.__globals__}
    for name, cell in cells.items():
        try:
            bound[name] = cell.cell_contents
        except ValueError:  # bound later
            bound[name] = None
    return [bound[name] for name in sorted({*cells, *_names(function.__code__)}) if name in bound]


def _names(code: CodeType) -> set[str]:
    inner = [_names(one) for one in code.co_consts if isinstance(one, CodeType)]
    return set(code.co_names).union(*inner)


def _bytecode(code: CodeType) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames}"
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _bytecode(one)
        else:
            yield repr(sorted(map(repr, one)) if isinstance(one, frozenset) else one)
