"""Lists what installed packages add to simulations by entry points, such as methods, rules and click models."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class InstalledPlugin:
    """One entry point of a group.

    Attributes:
        name: what settings call it.
        package: the distribution that brings it.
        thing: the imported object; None if it cannot be used.
        error: why it cannot be used; None if it can.
    """

    name: str
    package: str
    thing: Any
    error: str | None

    @property
    def meaning(self) -> str:
        """Return the first line of its docstring, or of its settings' if it is a method; empty without one."""
        return first_line(getattr(self.thing, "training", self.thing))


def installed_plugins(group: str, taken: Container[str] = ()) -> list[InstalledPlugin]:
    """Import the objects of a group. One that fails is returned with its error, and the others follow.

    Args:
        taken: names that a package cannot have.
    """
    found = list[InstalledPlugin]()
    packages = dict[str, str]()
    for entry in _entries(group):
        package = _package(entry)
        thing: Any = None
        error: str | None
        if entry.name in taken:
            error = "foltr has this name itself, and uses its own"
        elif entry.name in packages:
            error = f"the package {packages[entry.name]} has the same name, and is used"
        else:
            packages[entry.name] = package
            thing, error = _imported(entry)
        found.append(InstalledPlugin(entry.name, package, thing, error))
    return found


def also_installed(group: str, known: Container[str]) -> str:
    """Return what an error message says after the known names: those of installed packages. Nothing is imported."""
    names = dict[str, list[str]]()
    for entry in _entries(group):
        if entry.name not in known:
            names.setdefault(_package(entry), []).append(entry.name)
    packages = "; ".join(f"{', '.join(of_package)} of {package}" for package, of_package in names.items())
    return f"; only simulated: {packages}" if packages else ""


def first_line(thing: object) -> str:
    """Return the first line of an object's docstring; empty without one of its own."""
    import inspect

    text = inspect.getdoc(thing) or ""
    return "" if text == inspect.getdoc(type(thing)) else text.partition("\n")[0]


def _entries(group: str) -> "Iterable[EntryPoint]":
    # Here: a device names no plug-in, and this takes thirty modules.
    from importlib.metadata import entry_points

    return entry_points(group=group)


def _imported(entry: "EntryPoint") -> tuple[Any, str | None]:
    try:
        return entry.load(), None
    except Exception as error:  # noqa: BLE001 (a package's own code may raise anything)
        return None, f"{type(error).__name__}: {error}"


def _package(entry: "EntryPoint") -> str:
    return "an unknown package" if entry.dist is None else entry.dist.name
