"""Methods, rules, attacks, click models, metrics and data sets from outside the package.

A configuration holds their names, so that it stays plain text. A name comes from an object that was handed over
(`plug_in`), from an entry point, or is ``module:name`` (`load_named`). Other processes get the objects with the names
(`pack`), and a kept result has a fingerprint of each (`fingerprints_of`).
"""

import functools
import importlib
import inspect
import pickle
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, Protocol, get_args

from foltr.core.aggregation.rule_spec import ABANDON, RULES, rule_terms
from foltr.core.data.sources import SYNTHETIC
from foltr.core.errors import FoltrError, SettingsError
from foltr.core.evaluation.click_models import CLICK_MODEL_NAMES, ClickModel, click_model
from foltr.core.evaluation.named_metrics import MAX_RR, METRIC_FUNCTIONS
from foltr.core.installed_plugins import installed_plugins
from foltr.core.methods.registry import METHODS
from foltr.core.methods.spec import MethodSpec
from foltr_research.attacks.registry import ATTACKS, add_attack
from foltr_research.simulation.digests.live import digest_of_object
from foltr_research.simulation.method_names import all_methods
from foltr_research.simulation.own_data import arrays_of, digest_of_arrays
from foltr_research.simulation.own_method import Method, spec_of_class
from foltr_research.simulation.plugin_checks import checked

Kind = Literal["method", "aggregation", "attack", "clicks", "metrics", "data"]
"""The field of a configuration that names it."""
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
GROUPS: Final[dict[Kind, str]] = {
    "method": "foltr.methods",
    "aggregation": "foltr.rules",
    "attack": "foltr.attacks",
    "clicks": "foltr.click_models",
    "metrics": "foltr.metrics",
    "data": "foltr.data",
}
"""The groups of entry points."""

_IMPORTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_OURS = ("foltr", "foltr_research")
# More is not sent with every run.
_MOST_BYTES = 100_000_000


class Names(Protocol):
    """The fields of a configuration that may name an object from outside."""

    @property
    def method(self) -> str: ...
    @property
    def aggregation(self) -> str: ...
    @property
    def aggregation_fallback(self) -> str: ...
    @property
    def attack(self) -> str | None: ...
    @property
    def clicks(self) -> tuple[str, ...]: ...
    @property
    def metrics(self) -> tuple[str, ...]: ...
    @property
    def data(self) -> str: ...


_held = dict[tuple[Kind, str], Any]()


def plug_in(kind: Kind, thing: Any, name: str | None = None) -> str:
    """Register an object and return its name. The newest one of a name counts.

    Args:
        name: for it; default: the object's.

    Raises:
        SettingsError: it cannot be one of its kind, or has a name of foltr's own.
        DataError: data that is no arrays.
    """
    if kind == "data" and not callable(thing):
        thing = arrays_of(thing)
        name = name or f"arrays-{digest_of_arrays(thing)}"
    name = name or _name_of(kind, thing)
    if (kind, name) not in _held and name in _own_names(kind):
        raise SettingsError(f"{kind}: {name!r} is one of foltr's; give yours another name")
    _install(kind, name, thing)
    _held[kind, name] = thing
    return name


def hand_over(kind: Kind, thing: Any) -> str:
    """Register an object as `plug_in`, unless an installed package has given its name to another.

    Raises:
        SettingsError: also for such a name, which would mean this object from here on.
    """
    if kind != "data" or callable(thing):
        name = _name_of(kind, thing)
        for one in entry_points(group=GROUPS[kind], name=name):
            theirs = None
            with suppress(Exception):  # a name of theirs, also if it cannot be loaded
                theirs = one.load()
            if theirs is not thing:
                package = "another package" if one.dist is None else f"the package {one.dist.name}"
                raise SettingsError(f"{kind}: {name!r} is a name of {package}; give yours another name")
    return plug_in(kind, thing)


def held(kind: Kind, name: str) -> Any:
    """Return what was registered under a name; None without such."""
    return _held.get((kind, name))


def registered(kind: Kind) -> list[str]:
    """Return the names of all registered objects of a kind."""
    return [name for of, name in _held if of == kind]


def load_installed(config: Names) -> None:
    """Load what a configuration names, as `load_named`, and check what is from outside.

    What is named as ``module:name`` is taken from its module again if that was reloaded.

    Raises:
        SettingsError: also if an entry point cannot be imported, and it names the package; or as `checked`.
    """
    try:
        _take_reloaded(config)
        load_named(config)
    except FoltrError:
        raise
    except Exception as error:
        named = set(_names_in(config))
        broken = (
            f"{kind}: {one.name} of the package {one.package} cannot be imported: {one.error}"
            for kind in KINDS
            for one in installed_plugins(GROUPS[kind])
            if one.error is not None and (kind, one.name) in named
        )
        if told := "; ".join(broken):
            raise SettingsError(told) from error
        # A traceback shows the line of one's own code.
        raise
    for kind, name in _names_in(config):
        if (kind, name) in _held:
            _held[kind, name] = thing = checked(kind, name, _held[kind, name], _EXPECTED[kind])
            if kind == "metrics":
                METRIC_FUNCTIONS[name] = thing


def _take_reloaded(config: Names) -> None:
    for kind, name in _names_in(config):
        module, _, attribute = name.partition(":")
        had, now = _held.get((kind, name)), getattr(sys.modules.get(module), attribute, None)
        # Only functions are replaced by a check around them.
        if had is not None and now is not None and now is not had and now is not getattr(had, "__wrapped__", None):
            plug_in(kind, now, name)


def load_named(config: Names) -> None:
    """Import what a configuration names by an entry point or as ``module:name``, once.

    Raises:
        SettingsError: it cannot be imported, or is not one of its kind.
    """
    for kind, name in _names_in(config):
        if (kind, name) in _held or name in _own_names(kind) or (kind == "data" and Path(name).exists()):
            continue
        if _IMPORTED.fullmatch(name):
            plug_in(kind, _imported(kind, name), name)
        elif found := tuple(entry_points(group=GROUPS[kind], name=name)):
            plug_in(kind, found[0].load(), name)


def model_of_user(name: str, n_grades: int) -> ClickModel:
    """Return a click model of a name for a scale of ``n_grades``. Raises SettingsError as `click_model`."""
    own = held("clicks", name)
    if own is None:
        return click_model(name, n_grades)
    return own if isinstance(own, ClickModel) else ClickModel(name, (0.5,) * n_grades, (0.0,) * n_grades, reads=own)


def pack(configs: Iterable[Names]) -> bytes:
    """Return all registered objects that configurations name, for `unpack` in another process; empty for none.

    Code of installed packages goes by name, so workers need these too; other code goes along.

    Raises:
        SettingsError: an object cannot be sent, or is too large to send with every run.
    """
    import cloudpickle

    packed = []
    for kind, name in dict.fromkeys(pair for config in configs for pair in _names_in(config) if pair in _held):
        try:
            with _code_goes_along(_held[kind, name]):
                sent = cloudpickle.dumps(_held[kind, name])
        except Exception as error:  # a foreign object's pickling may raise anything
            raise SettingsError(
                f"{kind}: {name} cannot be sent to other processes ({error}); define it in a module, or use jobs = 1"
            ) from error
        if len(sent) > _MOST_BYTES:
            raise SettingsError(
                f"{kind}: {name} has {len(sent) / 1e6:.0f} MB, which every run would get; hand over a function that "
                "loads it, use a folder, or jobs = 1"
            )
        packed.append((kind, name, sent))
    return pickle.dumps(packed) if packed else b""


def unpack(packed: bytes) -> None:
    """Register what `pack` of the sweep's own process has made."""
    if not packed:
        return
    import cloudpickle

    for kind, name, sent in pickle.loads(packed):  # noqa: S301 (from the process that started this one)
        plug_in(kind, cloudpickle.loads(sent), name)


def fingerprints_of(config: Names) -> dict[str, str]:
    """Return a digest of the code or arrays of each registered object that a configuration names."""
    return {
        f"{kind} {name}": _fingerprint(_held[kind, name]) for kind, name in _names_in(config) if (kind, name) in _held
    }


def named_plugins(config: Names) -> tuple[str, ...]:
    """Return the keys of `fingerprints_of`, at once: a digest of large arrays takes a while."""
    return tuple(f"{kind} {name}" for kind, name in _names_in(config) if (kind, name) in _held)


def ids_of_plugins() -> frozenset[int]:
    """Return the ids of all registered objects, and of what stands for them in tables."""
    methods = (METHODS[name] for kind, name in _held if kind == "method")
    return frozenset(map(id, (*_held.values(), *methods)))


def _names_in(config: Names) -> Iterator[tuple[Kind, str]]:
    yield "method", config.method
    for rule in (config.aggregation, config.aggregation_fallback):
        yield "aggregation", rule.strip().rpartition("+")[2]
    if config.attack is not None:
        yield "attack", config.attack
    for clicks in config.clicks:
        yield "clicks", clicks
    for metric in config.metrics:
        yield "metrics", metric.partition("@")[0]
    yield "data", config.data


def _own_names(kind: Kind) -> tuple[str, ...]:
    """Return the names of a kind that are taken: foltr's own, and those registered."""
    match kind:
        case "method":
            return all_methods()
        case "aggregation":
            return (*RULES, ABANDON)
        case "attack":
            return tuple(ATTACKS)
        case "clicks":
            return CLICK_MODEL_NAMES
        case "metrics":
            return (*METRIC_FUNCTIONS, MAX_RR)
    return (SYNTHETIC,)


def _name_of(kind: Kind, thing: Any) -> str:
    if isinstance(thing, MethodSpec | ClickModel):
        name = thing.name
    else:
        # A partial function has no name, unless it was given one.
        code = thing if hasattr(thing, "__name__") else getattr(thing, "func", thing)
        name = str(getattr(code, "__name__", type(thing).__name__)).strip("<>")
    if not re.fullmatch(r"[\w.:-]{1,64}", name):
        raise SettingsError(f"{kind}: {name!r:.80} cannot be a name; use letters, digits, '_', '.', '-', at most 64")
    return name


def _install(kind: Kind, name: str, thing: Any) -> None:
    """Add an object to the registry of its kind. Click models and data sets are looked up here."""
    match kind:
        case "method" if isinstance(thing, type) and issubclass(thing, Method):
            METHODS[name] = spec_of_class(thing, name)
        case "method" if isinstance(thing, MethodSpec):
            # A method is found by the class of its settings.
            others = (other for other, spec in METHODS.items() if other != name and spec.training is thing.training)
            for other in others:
                if _held.get((kind, other)) is not thing:
                    raise SettingsError(
                        f"method: {name}: {thing.training.__name__} is the training of {other}; derive a class from it"
                    )
            METHODS[name] = replace(thing, name=name)
        case "aggregation" if callable(thing):
            defaults = _defaults(kind, name, thing)
            RULES[name] = rule_terms(_with_types(thing, defaults), _meaning(thing), defaults)
        case "attack" if callable(thing):
            defaults = _defaults(kind, name, thing)
            add_attack(name, _with_types(thing, defaults), _meaning(thing), defaults)
        case "clicks" if type(thing) is ClickModel or (callable(thing) and not isinstance(thing, type)):
            pass
        case "metrics" if callable(thing):
            METRIC_FUNCTIONS[name] = thing
        case "data" if callable(thing) or isinstance(thing, tuple):
            pass
        case _:
            raise SettingsError(f"{kind}: expected {_EXPECTED[kind]}, not {thing!r:.60}")


_EXPECTED: Final[dict[Kind, str]] = {
    "method": "a class derived from foltr_research.Method, or a MethodSpec",
    "aggregation": "a function of updates, weights and byzantine",
    "attack": "a function of an AttackedRound",
    "clicks": "a ClickModel, or a function of grades and draws",
    "metrics": "a function of the grades in ranked order, the same sorted downwards, and the cut-off",
    "data": "arrays, or a function that returns them",
}


def _meaning(thing: Any) -> str:
    return (inspect.getdoc(thing) or "from outside").partition("\n")[0]


def _defaults(kind: Kind, name: str, function: Any) -> dict[str, float]:
    """Return the parameters of a rule or an attack: arguments of a function that have a number as default."""
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty:
            if isinstance(parameter.default, bool) or not isinstance(parameter.default, int | float):
                raise SettingsError(f"{kind}: {name}: its parameter {parameter.name} needs a number as default")
            found[parameter.name] = parameter.default
    return found


def _with_types(function: Callable[..., Any], defaults: dict[str, float]) -> Callable[..., Any]:
    """Return the function with whole numbers for parameters whose default is one."""

    def call(*seen: Any, **parameters: float) -> Any:
        return function(*seen, **{name: type(defaults[name])(value) for name, value in parameters.items()})

    return call


def _imported(kind: Kind, text: str) -> Any:
    module_name, _, name = text.partition(":")
    # A command of a package does not look in the folder it is started in.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        return getattr(importlib.import_module(module_name), name)
    except ImportError as error:
        raise SettingsError(f"{kind}: {text}: module {module_name} cannot be imported: {error}") from error
    except AttributeError as error:
        raise SettingsError(f"{kind}: {text}: module {module_name} has no {name}") from error


def _code_of(thing: Any) -> list[Any]:
    """Return the classes and functions that an object consists of, without foltr's."""
    if isinstance(thing, MethodSpec):
        parts = [getattr(thing, one.name) for one in fields(thing)]
    elif isinstance(thing, ClickModel):
        parts = [thing.reads]
    elif isinstance(thing, functools.partial):
        parts = [thing.func]
    else:
        parts = [thing if inspect.isroutine(thing) or isinstance(thing, type) else type(thing)]
    return [part for part in parts if callable(part) and part.__module__.partition(".")[0] not in _OURS]


@contextmanager
def _code_goes_along(thing: Any) -> Iterator[None]:
    """Let an object's modules be pickled with their code, unless they are of an installed package."""
    import cloudpickle

    installed = tuple(sysconfig.get_path(one) for one in ("stdlib", "purelib", "platlib"))
    modules: list[ModuleType] = []
    for part in _code_of(thing):
        module = sys.modules.get(part.__module__)
        file = getattr(module, "__file__", None)
        if module is not None and file is not None and not file.startswith(installed):
            modules.append(module)
    before = cloudpickle.list_registry_pickle_by_value()
    added = {module.__name__: module for module in modules if module.__name__ not in before}
    for module in added.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added.values():
            cloudpickle.unregister_pickle_by_value(module)


def _fingerprint(thing: Any) -> str:
    """Return a digest of arrays, or of an object's code and values; it is the same in every process."""
    if isinstance(thing, tuple):
        return digest_of_arrays(thing)
    if isinstance(thing, MethodSpec) or (isinstance(thing, type) and issubclass(thing, Method)):
        training = thing.training if isinstance(thing, MethodSpec) else thing
        return digest_of_object((thing, repr(training.model_fields)))
    is_code = inspect.isroutine(thing) or isinstance(thing, ClickModel | functools.partial)
    return digest_of_object(thing if is_code else (type(thing), sorted(vars(thing).items())))
