"""A digest of an object from outside with all that it consists of: code, what that refers to, and values.

It follows functions and classes into every module that is not of an installed package, and any other object into the
state that a copy of it would have. A kept result is of no use if one of them is another.
"""

import copyreg
import dis
import functools
import hashlib
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np
from pydantic import BaseModel

from foltr.core.methods.spec import MethodSpec

_LIBRARIES = frozenset({"foltr", "foltr_research", *sys.stdlib_module_names})
_INSTALLED = tuple(sysconfig.get_path(one) for one in ("stdlib", "purelib", "platlib"))
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_VALUES = (*_PLAIN, tuple, frozenset, np.ndarray)
_Description = tuple[str, list[object]]


def digest_of_whole(thing: object, packages: frozenset[str] | None = None, apart: frozenset[int] = frozenset()) -> str:
    """Return 32 hexadecimal digits, the same in every process for the same code and values.

    Args:
        packages: followed even if they are installed; default: those of the object.
        apart: the ids of objects that count by their names alone.
    """
    if packages is None:
        packages = frozenset(_package(one) for one in _made_of(thing))
    digest = hashlib.sha256()
    # With the objects, because an id may come again once its object is gone.
    seen: dict[int, tuple[int, object]] = {}
    waiting = [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in apart:
            digest.update(f"{_named(one)}\n".encode())
            continue
        one = _unwrapped(one)
        if id(one) in seen:
            digest.update(f"as {seen[id(one)][0]}\n".encode())
            continue
        # Which equal values are one object differs between processes.
        if type(one) not in _VALUES:
            seen[id(one)] = len(seen), one
        said, parts = _described(one, packages)
        digest.update(f"{said} {len(parts)}\n".encode())
        waiting += reversed(parts)
    return digest.hexdigest()[:32]


def _made_of(thing: Any) -> list[Any]:
    """Return the functions or classes that an object is made of."""
    if isinstance(thing, MethodSpec):
        return [one for one in vars(thing).values() if isinstance(one, FunctionType | type)]
    if isinstance(thing, functools.partial):
        return _made_of(thing.func)
    return [thing if isinstance(thing, FunctionType | type) else type(thing)]


def _package(code: object) -> str:
    return str(getattr(code, "__module__", "")).partition(".")[0]


def _unwrapped(value: Any) -> Any:
    """Return the function behind a cached or compiled one, and behind a check of foltr's."""
    while isinstance(inside := getattr(value, "__dict__", None), dict):
        inner = inside.get("__wrapped__") or inside.get("py_func")
        if inner is None or (isinstance(value, FunctionType) and not _module(value).startswith("foltr_research.")):
            break
        value = inner
    return value


def _module(function: FunctionType) -> str:
    # A decorator may have given it another function's __module__.
    return str(function.__globals__.get("__name__", ""))


def _is_followed(module: str, packages: frozenset[str]) -> bool:
    top = module.partition(".")[0]
    if top in _LIBRARIES or top in packages:
        return top not in _LIBRARIES
    return not str(getattr(sys.modules.get(top), "__file__", None) or "").startswith(_INSTALLED)


def _described(value: Any, packages: frozenset[str]) -> _Description:
    """Return a line, and the parts that are described after it."""
    kind = type(value)
    named = _named(value)
    if kind in _PLAIN:
        return repr(value), []
    if kind is np.ndarray and not value.dtype.hasobject:
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}", []
    if kind in (dict, MappingProxyType):
        return named, [part for item in value.items() for part in item]
    if kind in (list, tuple):
        return named, list(value)
    if kind in (set, frozenset):
        return named, sorted(value, key=_place)
    if kind is FunctionType:
        if not _is_followed(_module(value), packages):
            return named, [getattr(value, "__wrapped__", None)]
        return named, _parts_of_function(value, packages)
    if kind is MethodType:
        return named, [value.__func__, value.__self__]
    if kind is property:
        return named, [value.fget, value.fset, value.fdel]
    if kind in (staticmethod, classmethod):
        return named, [value.__func__]
    if kind is functools.cached_property:
        return named, [value.func]
    if isinstance(value, type):
        if not _is_followed(value.__module__, packages):
            return named, _replaced(value, packages)
        return named, _parts_of_class(value)
    if kind is ModuleType:
        return f"{named} {value.__name__}", []
    return named, _state(value)


def _named(value: Any) -> str:
    return f"{type(value).__name__} {getattr(value, '__module__', '')} {getattr(value, '__qualname__', '')}"


def _place(element: Any) -> str:
    """Return what to sort the elements of a set by, which is the same in every process."""
    if isinstance(element, tuple):
        return str([_place(one) for one in element])
    if isinstance(element, frozenset):
        return str(sorted(map(_place, element)))
    said = repr(element)
    return _named(element) if " at 0x" in said else said


def _state(value: Any) -> list[object]:
    """Return what a copy of an object is made from: its class and its values. Nothing if it cannot be copied."""
    try:
        copied = copyreg.dispatch_table.get(type(value))
        made = value.__reduce_ex__(4) if copied is None else copied(value)
    except Exception:  # noqa: BLE001 (a foreign object's may raise anything)
        return [type(value)]
    if isinstance(made, str):
        return [made]
    return [list(part) if isinstance(part, Iterator) else part for part in made]


def _parts_of_class(value: type) -> list[object]:
    own = {
        name: one
        for name, one in sorted(vars(value).items())
        if isinstance(one, FunctionType) or not name.startswith("__")
    }
    fields = repr(value.model_fields) if issubclass(value, BaseModel) else ""
    return [*value.__bases__, fields, own]


def _replaced(value: type, packages: frozenset[str]) -> list[object]:
    """Return the functions of a class that were put into it from elsewhere."""
    functions = ((name, one) for name, one in sorted(vars(value).items()) if isinstance(one, FunctionType))
    return [part for name, one in functions if _is_followed(_module(one), packages) for part in (name, one)]


def _parts_of_function(function: FunctionType, packages: frozenset[str]) -> list[object]:
    code = function.__code__
    bound = dict(function.__globals__)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # bound later
            bound[name] = cell.cell_contents
    names = _names(code)
    found = {name: bound[name] for name in sorted(names) if name in bound}
    modules = [one for one in found.values() if isinstance(one, ModuleType)]
    for module in (*modules, *_imported_within(code, function.__globals__, packages)):
        found |= _of_module(module, names, packages)
    attributes = {name: one for name, one in vars(function).items() if name != "__wrapped__"}
    return [_bytecode(code), function.__defaults__, function.__kwdefaults__, found, attributes]


def _of_module(module: ModuleType, names: set[str], packages: frozenset[str]) -> dict[str, object]:
    """Return what names may mean in a module that is followed, and in its submodules."""
    found: dict[str, object] = {}
    if not _is_followed(module.__name__, packages):
        return found
    for name in sorted(names & vars(module).keys()):
        value = vars(module)[name]
        found[f"{module.__name__}.{name}"] = value
        if isinstance(value, ModuleType) and value.__name__.startswith(f"{module.__name__}."):
            found |= _of_module(value, names, packages)
    return found


def _imported_within(code: CodeType, there: dict[str, Any], packages: frozenset[str]) -> Iterator[ModuleType]:
    """Yield the modules that a function imports when it is called, if they are followed."""
    level = 0
    for one in dis.get_instructions(code):
        if one.opname == "IMPORT_NAME":
            with suppress(Exception):  # the run says what cannot be imported
                name = importlib.util.resolve_name("." * level + one.argval, there.get("__package__"))
                top = importlib.util.find_spec(name.partition(".")[0])
                is_installed = top is None or str(top.origin).startswith(_INSTALLED)
                if name.partition(".")[0] in packages - _LIBRARIES or not is_installed:
                    yield importlib.import_module(name)
        if isinstance(one.argval, int):  # before an import this is how many packages it goes up
            level = one.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _imported_within(inner, there, packages)


def _names(code: CodeType) -> set[str]:
    inner = [_names(one) for one in code.co_consts if isinstance(one, CodeType)]
    return {*code.co_names, *code.co_freevars}.union(*inner)


def _bytecode(code: CodeType) -> list[object]:
    constants = [_bytecode(one) if isinstance(one, CodeType) else one for one in code.co_consts]
    return [code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants]
