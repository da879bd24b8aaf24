"""Reads one unit of source: what it says, which other units and strings it names, and under which conditions.

A *unit* is what a module binds at its top level: a function, a class, a table. An entry of a table or a branch on a
name counts only if that name may occur, and a branch on a class only if something may be of that class.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Unit = tuple[str, str]
"""A module and a name in it; an empty name: what the module does besides binding names."""
NameCondition = frozenset[str]
ClassCondition = frozenset[Unit]
Conditions = tuple[NameCondition | ClassCondition, ...]
"""All must hold; each holds if one of its names occurs, or something may be of one of its classes."""
_Mode = Literal["values", "test", "type"]

# The leading arguments of a call that are texts for people.
_TEXTS = {"Claim": 3, "Section": 1}
_NOT_FIELDS = frozenset({"ctx", "type_comment", "kind", "returns", "type_params"})


class Scope(Protocol):
    """What names mean in a module."""

    @property
    def choices(self) -> frozenset[str]:
        """Return the strings that select code and occur nowhere else."""

    @property
    def settings(self) -> frozenset[str]:
        """Return the settings of a run that the module may look at, by name."""

    @property
    def makes_settings(self) -> bool:
        """Return whether the module makes configurations."""

    def target(self, name: str) -> Unit | str | None:
        """Return the unit of a name, the path of an import from elsewhere, or None for a local or built-in name."""

    def add_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Heed an import within a function from there on."""

    def attribute(self, name: str, attribute: str) -> Unit | None:
        """Return the unit of an attribute if the name is a module of ours."""

    def is_class(self, unit: Unit) -> bool:
        """Return whether a unit is a class."""

    def record(self, unit: Unit) -> str | None:
        """Return the name of a record, such as ``fedips`` of ``FEDIPS = MethodSpec(name="fedips", ...)``."""

    def needed(self, unit: Unit) -> str | None:
        """Return the setting without which a unit is never used."""

    def constant(self, name: str) -> str | None:
        """Return the string that a name is bound to."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of text, a unit or a string that counts under conditions."""

    conditions: Conditions
    kind: Literal["text", "unit", "string"]
    value: str | Unit


@dataclass
class _Reader:
    scope: Scope
    entries: list[Entry] = field(default_factory=list)
    conditions: Conditions = ()
    # A string that is compared with is no value that occurs; nor does a test make something of a class or by a record.
    # A type names classes, whose strings are no values either.
    mode: _Mode = "values"
    _text: list[str] = field(default_factory=list)

    def finish(self) -> list[Entry]:
        self._flush()
        return self.entries

    def read(self, node: ast.AST) -> None:
        """Read a node with its parts."""
        match node:
            case ast.Constant():
                self._constant(node)
            case ast.Name(id=name):
                self._name(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                self._attribute(name, attribute)
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.Import() | ast.ImportFrom():
                self.scope.add_import(node)
            case ast.Raise(exc=exc):
                self._say("raise")
                self._under(exc.func if isinstance(exc, ast.Call) else exc, mode="test")
            case ast.arg(arg=name):
                self._say(name)
            case ast.ClassDef():
                self._class(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.AnnAssign(target=target, value=value):
                self._say("=")
                self._all(target, value)
            case ast.Compare():
                self._say(" ".join(type(one).__name__ for one in node.ops))
                self._all(node.left, *node.comparators, mode="test")
            case ast.If() | ast.IfExp():
                self._branch(node)
            case ast.Match(subject=subject, cases=cases):
                self._say("match")
                self._under(subject)
                for case in cases:
                    self._case(case)
            case ast.Dict():
                self._table(node)
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                self._say(type(node).__name__)
                for one in elements:
                    self._under(one, self._of_record(one))
            case ast.Call():
                self._call(node)
            case ast.Subscript(value=value, slice=index):
                self._say("[]")
                self._under(value)
                self._under(index, mode="type" if isinstance(value, ast.Name) and value.id == "Literal" else None)
            case _:
                self._parts(node)

    def _parts(self, node: ast.AST) -> None:
        self._say(f"({type(node).__name__}")
        for name, value in ast.iter_fields(node):
            if name not in _NOT_FIELDS:
                self._part(value)
        self._say(")")

    def _part(self, value: object) -> None:
        match value:
            case None | []:
                pass
            case ast.AST():
                self.read(value)
            case list():
                self._say("[")
                for one in value:
                    self._part(one)
                self._say("]")
            case _:
                self._say(repr(value))

    def _constant(self, node: ast.Constant) -> None:
        self._say(repr(node.value))
        if isinstance(node.value, str) and self.mode == "values":
            self._add("string", node.value)

    def _name(self, name: str) -> None:
        target = self.scope.target(name)
        self._say(name if target is None else str(target))
        if isinstance(target, tuple):
            self._unit(target)

    def _attribute(self, name: str, attribute: str) -> None:
        self._say(f".{attribute}")
        unit = self.scope.attribute(name, attribute)
        if unit is None:
            self._under(ast.Name(name), self._of_record(ast.Name(name)))
        else:
            self._say(str(unit))
            self._unit(unit)

    def _unit(self, unit: Unit) -> None:
        if self.mode != "test" or not (self.scope.is_class(unit) or self.scope.record(unit)):
            self._add("unit", unit)

    def _class(self, node: ast.ClassDef) -> None:
        self._say(f"class {node.name}")
        self._all(*node.decorator_list, *node.bases, *node.keywords)
        plain = any("dataclass" in ast.unparse(one) for one in node.decorator_list)
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and not plain:
                # A message is read from data as the types of its fields say; the strings in them are not values.
                self._under(one.annotation, mode="type")
            self.read(one)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._say(f"def {node.name}")
        self._all(*node.decorator_list, node.args)
        before = self.conditions
        for one in node.body:
            self.read(one)
            if isinstance(one, ast.If) and not one.orelse and isinstance(one.body[-1], ast.Return | ast.Raise):
                # What follows an early return counts only if its test may fail.
                self._flush()
                self.conditions = (*self.conditions, *self._after(one.test))
        self._flush()
        self.conditions = before

    def _branch(self, node: ast.If | ast.IfExp) -> None:
        self._say("if")
        self._under(node.test)
        self._under(node.body, self._conditions(node.test))
        self._say("else")
        self._under(node.orelse)

    def _case(self, case: ast.match_case) -> None:
        self._all(*filter(None, [case.guard]))
        self._under(case.pattern, found := self._of_pattern(case.pattern), mode="test")
        self._under(case.body, found)

    def _table(self, node: ast.Dict) -> None:
        self._say("{")
        for key, value in zip(node.keys, node.values, strict=True):
            chosen = () if key is None else self._of_key(key)
            self._under(key, chosen, mode="test" if chosen or isinstance(key, ast.Name) else None)
            self._under(value, chosen)
            self._setting(None if key is None else self._string(key), value)
        self._say("}")

    def _call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in {"isinstance", "issubclass"} and len(node.args) == 2:
            self._say(name)
            self._under(node.args[0])
            self._under(node.args[1], mode="test")
            return
        self._say("call")
        self.mode, before = "values", self.mode
        self._all(node.func, *node.args[_TEXTS.get(name, 0) :])
        for keyword in node.keywords:
            self._say(f"{keyword.arg}=")
            self._under(keyword.value)
            self._setting(keyword.arg, keyword.value)
        self.mode = before

    def _setting(self, name: str | None, value: ast.expr) -> None:
        """Count a setting of a run, as `names_of` does, where code makes configurations."""
        if self.scope.makes_settings and name is not None and not (isinstance(value, ast.Constant) and not value.value):
            self._add("string", f"config.{name}")
            if (text := self._string(value)) is not None:
                self._add("string", f"config.{name}={text}")

    def _of_key(self, key: ast.expr) -> Conditions:
        """Return under which conditions an entry of a table counts."""
        match key:
            case ast.Attribute(value=ast.Name() as record, attr="name"):
                return self._of_record(record)
            case ast.Name() if kinds := self._of_classes([key]):
                return kinds
        name = self._string(key)
        return () if name is None or name not in self.scope.choices else (frozenset({name}),)

    def _conditions(self, test: ast.expr) -> Conditions:
        """Return what must hold for a test to be true, as far as it is known."""
        match test:
            case ast.BoolOp(op=ast.And(), values=values):
                return tuple(one for value in values for one in self._conditions(value))
            case ast.Attribute() | ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
                setting = self._setting_of(test if isinstance(test, ast.Attribute) else test.left)
                zero = set() if isinstance(test, ast.Attribute) else {f"{setting}=0"}
                return () if setting is None else (frozenset({setting, *zero}),)
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]) if setting := self._setting_of(left):
                value = self._string(right)
                return () if value is None else (frozenset({f"{setting}={value}"}),)
            case ast.Call(
                func=ast.Attribute(value=value, attr="startswith"), args=[ast.Constant(value=str(beginning))]
            ):
                setting = self._setting_of(value)
                chosen = (one for one in self.scope.choices if one.startswith(beginning))
                return () if setting is None else (frozenset(f"{setting}={one}" for one in chosen),)
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                names = [name for name in (self._string(left), self._string(right)) if name is not None]
            case ast.Compare(ops=[ast.In()], comparators=[ast.Tuple(elts=found) | ast.Set(elts=found)]):
                texts = [self._string(one) for one in found]
                names = [text for text in texts if text is not None] if None not in texts else []
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
                return self._of_classes(kind.elts if isinstance(kind, ast.Tuple) else [kind])
            case _:
                return ()
        return (frozenset(names),) if names and self.scope.choices.issuperset(names) else ()

    def _after(self, test: ast.expr) -> Conditions:
        """Return what must hold for a test to be false, as far as it is known."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._conditions(operand)
            case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
                return self._conditions(ast.Compare(left, [ast.Eq()], [right]))
            case ast.Compare(left=left, ops=[ast.Is()], comparators=[right]):
                return self._conditions(ast.Compare(left, [ast.IsNot()], [right]))
        return ()

    def _setting_of(self, node: ast.expr) -> str | None:
        """Return ``config.NAME`` if a node is a setting of a run."""
        match node:
            case ast.Attribute(value=ast.Name(id="config"), attr=name) if name in self.scope.settings:
                return f"config.{name}"
        return None

    def _of_pattern(self, pattern: ast.pattern) -> Conditions:
        match pattern:
            case ast.MatchValue(value=ast.Constant(value=str(name))) if name in self.scope.choices:
                return (frozenset({name}),)
            case ast.MatchOr(patterns=patterns):
                names = [self._string(one.value) for one in patterns if isinstance(one, ast.MatchValue)]
                known = frozenset(name for name in names if name in self.scope.choices and name is not None)
                return (known,) if len(known) == len(patterns) else ()
            case ast.MatchClass(cls=kind):
                return self._of_classes([kind])
        return ()

    def _of_classes(self, kinds: Sequence[ast.expr]) -> Conditions:
        found = [self.scope.target(one.id) if isinstance(one, ast.Name) else None for one in kinds]
        units = frozenset(one for one in found if isinstance(one, tuple) and self.scope.is_class(one))
        return (units,) if len(units) == len(found) else ()

    def _of_record(self, node: ast.AST) -> Conditions:
        if isinstance(node, ast.Name):
            target = self.scope.target(node.id)
            name = self.scope.record(target) if isinstance(target, tuple) else None
            if name is not None:
                return (frozenset({name}),)
        return ()

    def _string(self, node: ast.expr) -> str | None:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name):
                return self.scope.constant(name)
        return None

    def _all(self, *nodes: ast.AST | None, mode: _Mode | None = None) -> None:
        for one in nodes:
            self._under(one, mode=mode)

    def _under(
        self, node: ast.AST | Sequence[ast.AST] | None, conditions: Conditions = (), *, mode: _Mode | None = None
    ) -> None:
        """Read nodes that count only under further conditions."""
        before = self.conditions, self.mode
        if conditions:
            self._flush()
            self.conditions = (*self.conditions, *conditions)
        self.mode = mode or self.mode
        for one in [] if node is None else node if isinstance(node, Sequence) else [node]:
            self.read(one)
        if conditions:
            self._flush()
        self.conditions, self.mode = before

    def _say(self, text: str) -> None:
        self._text.append(text)

    def _flush(self) -> None:
        if self._text:
            self._add("text", " ".join(self._text))
            self._text.clear()

    def _add(self, kind: Literal["text", "unit", "string"], value: str | Unit) -> None:
        needed = self.scope.needed(value) if isinstance(value, tuple) else None
        conditions = self.conditions if needed is None else (*self.conditions, frozenset({needed}))
        self.entries.append(Entry(conditions, kind, value))


def read_entries(nodes: Sequence[ast.AST], scope: Scope) -> list[Entry]:
    """Return what nodes of one module say and name."""
    reader = _Reader(scope)
    for node in nodes:
        reader.read(node)
    return reader.finish()


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module's top level binds, other than by an import."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            parts = (one for target in targets for one in ast.walk(target))
            yield from (one.id for one in parts if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.If() | ast.Try() | ast.With():
            for child in ast.iter_child_nodes(statement):
                inner = child.body if isinstance(child, ast.ExceptHandler) else [child]
                for one in inner:
                    if isinstance(one, ast.stmt):
                        yield from bound_names(one)


def imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """Yield each imported name with the module and what is taken from it; None for the module itself."""
    for one in node.names:
        if isinstance(node, ast.ImportFrom):
            yield one.asname or one.name, (node.module or "", one.name)
        else:
            yield one.asname or one.name.partition(".")[0], (one.name if one.asname else "", None)
