"""The code that runs use, found in the source: nothing is imported or run, so looking at all reports takes a second.

From the units that a run starts with follow those that they name, and so on. A rule, attack or method that no
configuration and no used code names does not count. Comments, docstrings, annotations of functions and messages of
errors do not count either: no result depends on them.
"""

import ast
import functools
import hashlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import foltr.core
import foltr_research
from foltr_research.simulation.digests.live import Binding
from foltr_research.simulation.digests.units import (
    Conditions,
    Entry,
    Unit,
    bound_names,
    imported_names,
    read_entries,
)

RUN: Unit = ("foltr_research.simulation.sweeps.sweep", "run_config")
"""What runs a configuration."""

# The strings that select code. Others may come from anywhere, so branches on them always count.
_CHOICES = (
    ("foltr.core.aggregation.rule_spec", "RULES"),
    ("foltr.core.aggregation.rule_spec", "PRE_STEPS"),
    ("foltr_research.attacks.registry", "ATTACKS"),
    ("foltr_research.simulation.method_names", "SIMULATOR_METHODS"),
)
# The module of a configuration, whose literal types are choices, too.
_SETTINGS = "foltr_research.simulation.config"
# The modules that make configurations.
_EXPERIMENTS = "foltr_research.reproductions"
# Settings without which a unit is not used, where its users only test whether they have one.
_NEEDED: Mapping[Unit, str] = {
    ("foltr_research.attacks.attacked_round", "craft"): "config.attack",
    ("foltr_research.simulation.secure_sums", "SecureAggregation"): "config.privacy=secure",
    ("foltr_research.simulation.secure_sums", "promise_of"): "config.privacy=secure",
}
# They say something to people, keep files or stop a run. No figure of a finished run depends on them.
_WITHOUT_EFFECT = frozenset(
    {
        "foltr.core.errors",
        "foltr.core.extras",
        "foltr.core.logs",
        "foltr.core.user_files",
        "foltr.core.version",
        "foltr_research.simulation.checkpoint",
        "foltr_research.simulation.fingerprints",
    }
)


@dataclass(frozen=True)
class _Module:
    """A module's syntax: what it binds by name, under "" what it does besides, and its imports."""

    tree: ast.Module
    units: dict[str, list[ast.stmt]]
    imports: dict[str, tuple[str, str | None]]

    @classmethod
    def read(cls, tree: ast.Module) -> "_Module":
        units: dict[str, list[ast.stmt]] = {}
        for statement in tree.body:
            for name in list(bound_names(statement)) or [""]:
                units.setdefault(name, []).append(statement)
        outside = [one for one in tree.body if not isinstance(one, ast.FunctionDef | ast.ClassDef)]
        nodes = [node for one in outside for node in ast.walk(one) if isinstance(node, ast.Import | ast.ImportFrom)]
        return cls(tree, units, {name: source for node in nodes for name, source in imported_names(node)})


@dataclass(frozen=True)
class _Scope:
    """What names mean in a module, or in one of its units with own imports."""

    sources: "Sources"
    module: str
    units: Mapping[str, object]
    imports: dict[str, tuple[str, str | None]]
    choices: frozenset[str]
    settings: frozenset[str]
    makes_settings: bool

    def target(self, name: str) -> Unit | str | None:
        if name in self.imports:
            return self.sources.imported(*self.imports[name])
        return (self.module, name) if name in self.units else None

    def attribute(self, name: str, attribute: str) -> Unit | None:
        match self.target(name):
            case (str(module), "*"):
                found = self.sources.imported(module, attribute)
                return found if isinstance(found, tuple) else None
        return None

    def add_import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.imports.update(imported_names(node))

    def is_class(self, unit: Unit) -> bool:
        return self.sources.is_class(unit)

    def needed(self, unit: Unit) -> str | None:
        return _NEEDED.get(unit)

    def record(self, unit: Unit) -> str | None:
        return _name_of_record(self.sources.value(unit))

    def constant(self, name: str) -> str | None:
        target = self.target(name)
        value = self.sources.value(target) if isinstance(target, tuple) else None
        return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


class Sources:
    """The source below some packages.

    Args:
        roots: the folder of each package by its name.
    """

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self._roots = roots
        self._modules: dict[str, _Module] = {}
        self._entries: dict[Unit, list[Entry]] = {}
        self._imported: dict[tuple[str, str | None], Unit | str] = {}
        self.choices: frozenset[str] = frozenset()
        self.settings = frozenset(
            field.target.id
            for statement in self._module(_SETTINGS).tree.body
            for field in (statement.body if isinstance(statement, ast.ClassDef) else [])
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        )
        self.choices = frozenset(name for table in _CHOICES for name in self._keys(table)) | self._literals(_SETTINGS)

    def used(
        self, starts: Iterable[Unit], names: Iterable[str], parts: Sequence[tuple[str, Sequence[ast.AST]]] = ()
    ) -> dict[str, str]:
        """Return 16 hexadecimal digits for each module of which something is used.

        Args:
            starts: the units that begin a run.
            names: what `names_of` returns for the configurations.
            parts: further nodes that begin it, each list with its module.
        """
        digests: dict[str, Any] = {}
        read, strings = self._follow(starts, names, parts)
        for (module, name), entries in sorted(read.items()):
            said = [str(one.value) for one in entries if one.kind == "text" and _holds(one.conditions, strings, read)]
            if said:
                digests.setdefault(module, hashlib.sha256()).update("\n".join((name, *said, "")).encode())
        return {module: digest.hexdigest()[:16] for module, digest in digests.items()}

    def reached(self, starts: Iterable[Unit], names: Iterable[str]) -> set[Unit]:
        """Return the units that are used, with the arguments of `used`."""
        return set(self._follow(starts, names, ())[0])

    def _follow(
        self, starts: Iterable[Unit], names: Iterable[str], parts: Sequence[tuple[str, Sequence[ast.AST]]]
    ) -> tuple[dict[Unit, list[Entry]], set[str]]:
        """Return what is read of each used unit, and the strings that occur."""
        strings = {word for name in names for word in (name, *name.split("+"))}
        read = {(module, f"part {i}"): self._entries_of(module, nodes) for i, (module, nodes) in enumerate(parts)}
        waiting = [entry for entries in read.values() for entry in entries]
        following = list(starts)
        while following:
            for unit in following:
                read[unit] = self._unit(unit)
                waiting += read[unit]
            named, n_strings = dict[Unit, None](), -1
            while n_strings != len(strings):
                n_strings, waiting, tried = len(strings), [], waiting
                for entry in tried:
                    if not _holds(entry.conditions, strings, read):
                        waiting.append(entry)
                    elif isinstance(entry.value, tuple):
                        named.update(dict.fromkeys(self._expanded(entry.value)))
                    elif entry.kind == "string":
                        strings.add(entry.value)
            following = [unit for unit in named if unit not in read]
        return read, strings

    def modules_in(self, package: str) -> list[str]:
        """Return the modules below a package, by name."""
        path = self._path(package)
        folder = Path() if path is None else path.parent
        return sorted(
            ".".join((package, *one.relative_to(folder).with_suffix("").parts)) for one in folder.rglob("*.py")
        )

    def imported(self, module: str, name: str | None) -> Unit | str:
        """Return the unit behind an import, ``(module, "*")`` for a module, or the path of what is from elsewhere."""
        key = module, name
        if key not in self._imported:
            self._imported[key] = self._find(module, name)
        return self._imported[key]

    def _find(self, module: str, name: str | None) -> Unit | str:
        path = module if name is None else f"{module}.{name}"
        if not any(path == package or path.startswith(f"{package}.") for package in self._roots):
            return path
        if name is None or self._path(path) is not None:
            return path, "*"
        there = self._module(module)
        if name not in there.units and name in there.imports:
            return self.imported(*there.imports[name])
        return module, name

    def value(self, unit: Unit) -> ast.expr | None:
        """Return what a unit is bound to, if it is one assignment."""
        match self._module(unit[0]).units.get(unit[1]):
            case [ast.Assign(targets=[ast.Name()], value=value)] | [ast.AnnAssign(value=value)]:
                return value
        return None

    def tree(self, module: str) -> ast.Module:
        """Return the syntax of a module."""
        return self._module(module).tree

    def is_without_effect(self, module: str) -> bool:
        """Return whether no figure depends on a module, so that its code never counts."""
        return module in _WITHOUT_EFFECT

    def is_class(self, unit: Unit) -> bool:
        """Return whether a unit is a class."""
        return isinstance(self._definition(unit), ast.ClassDef)

    def bindings(self, modules: Iterable[str]) -> Iterator[Binding]:
        """Yield what modules bind to names by definitions, assignments and imports of each other."""
        for module in modules:
            scope = self._scope(module)
            for name in sorted({*scope.units, *scope.imports} - {""}):
                match scope.target(name):
                    case (source, taken) if taken != "*":
                        defined = isinstance(self._definition((source, taken)), ast.FunctionDef | ast.ClassDef)
                        yield Binding(
                            module, name, (source, taken) if defined else None, self._literal((source, taken))
                        )

    def _definition(self, unit: Unit) -> ast.stmt | None:
        return self._module(unit[0]).units.get(unit[1], [None])[-1]

    def _literal(self, unit: Unit) -> tuple[object, ...]:
        value = self.value(unit)
        try:
            return () if value is None else (ast.literal_eval(value),)
        except (ValueError, TypeError):
            return ()

    def _expanded(self, unit: Unit) -> Iterable[Unit]:
        """Return a unit with what its module does besides; of a whole module all units."""
        module, name = unit
        if module in _WITHOUT_EFFECT:
            return ()
        return ((module, one) for one in self._module(module).units) if name == "*" else (unit, (module, ""))

    def _unit(self, unit: Unit) -> list[Entry]:
        if unit not in self._entries:
            module, name = unit
            self._entries[unit] = self._entries_of(module, self._module(module).units.get(name, []))
        return self._entries[unit]

    def _entries_of(self, module: str, nodes: Sequence[ast.AST]) -> list[Entry]:
        return read_entries(nodes, self._scope(module))

    def _scope(self, module: str) -> _Scope:
        there = self._module(module)
        makes_settings = module.startswith(_EXPERIMENTS)
        # Elsewhere a name config may be of anything.
        settings = self.settings if module.startswith("foltr_research.") else frozenset()
        return _Scope(self, module, there.units, dict(there.imports), self.choices, settings, makes_settings)

    def _keys(self, table: Unit) -> list[str]:
        value, scope = self.value(table), self._scope(table[0])
        keys = value.keys if isinstance(value, ast.Dict) else []
        found = [scope.constant(key.id) if isinstance(key, ast.Name) else ast.literal_eval(key) for key in keys if key]
        return [name for name in found if isinstance(name, str)]

    def _literals(self, module: str) -> set[str]:
        literals = (
            ast.walk(node.slice)
            for node in ast.walk(self._module(module).tree)
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal"
        )
        found = (one.value for literal in literals for one in literal if isinstance(one, ast.Constant))
        return {value for value in found if isinstance(value, str)}

    def _path(self, module: str) -> Path | None:
        for package, root in self._roots.items():
            if module == package or module.startswith(f"{package}."):
                path = root.joinpath(*module.removeprefix(package).split(".")[1:])
                return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)
        return None

    def _module(self, name: str) -> _Module:
        if name not in self._modules:
            path = self._path(name)
            self._modules[name] = _Module.read(ast.parse("" if path is None else path.read_bytes()))
        return self._modules[name]


def _holds(conditions: Conditions, strings: Container[str], units: Container[Unit]) -> bool:
    return all(any(one in (strings if isinstance(one, str) else units) for one in names) for names in conditions)


def _name_of_record(node: ast.expr | None) -> str | None:
    """Return the keyword ``name`` of a call if it is a string."""
    if isinstance(node, ast.Call):
        for one in node.keywords:
            if one.arg == "name" and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                return one.value.value
    return None


@functools.cache
def installed_sources() -> Sources:
    """Return the source of the installed packages, which is read once per process."""
    return Sources({one.__name__: Path(str(one.__file__)).parent for one in (foltr.core, foltr_research)})


def names_of(config: Mapping[str, Any]) -> set[str]:
    """Return the strings of a configuration, and what is set: ``config.attack`` and ``config.attack=lie``."""
    names = set[str]()
    for field, value in config.items():
        if field == "data" or value is None or value is False:
            continue
        names.add(f"config.{field}" if value != 0 else f"config.{field}=0")
        each = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        for one in each:
            if isinstance(one, str):
                names |= {one, f"config.{field}={one}"}
    return names
