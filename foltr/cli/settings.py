"""Settings from a TOML file, the environment (``FOLTR_…``) and flags, read once at start, checked and frozen.

Flags override the environment, which overrides the file, which overrides defaults. An unknown key in the file or the
environment fails at start, so a typo is noticed.
"""

import difflib
import math
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import ValidationError

from foltr.cli.fields import (
    NONE,
    Command,
    Options,
    default_of,
    field_parameter,
    option,
    option_name,
    read_values,
    takes_parameters,
)
from foltr.cli.setting_groups import (
    ENV_PREFIX,
    Api,
    Defence,
    Devices,
    Group,
    Learning,
    Operations,
    PrivacySettings,
    Rounds,
    Unlearning,
)
from foltr.core.errors import SettingsError
from foltr.core.user_files import FileKind, read_text_file

DEFAULT_FILE = Path("foltr.toml")
_FILE_VARIABLE = "FOLTR_CONFIG"
# Read elsewhere: the settings file, the cache directory, and the folder of real data for tests and benchmarks.
_OTHER_VARIABLES = {_FILE_VARIABLE, "FOLTR_CACHE", "FOLTR_DATA"}
# Variables of the test suite may be set while it runs commands.
_TEST_PREFIX = "FOLTR_TEST_"

GROUPS: Final[Mapping[str, type[Group]]] = {
    "operations": Operations,
    "rounds": Rounds,
    "learning": Learning,
    "defence": Defence,
    "privacy": PrivacySettings,
    "unlearning": Unlearning,
    "api": Api,
    "devices": Devices,
}
"""The tables of the settings file."""
GROUP_OF: Final = {key: name for name, group in GROUPS.items() for key in group.model_fields}
DB_URL_VARIABLE: Final = f"{ENV_PREFIX}DB_URL"
VARIABLES: Final = {f"{ENV_PREFIX}{key.upper()}": key for key in GROUP_OF}

ConfigFile = Annotated[
    str | None, option(f"The settings; default: ./{DEFAULT_FILE}", "--config", envvar=_FILE_VARIABLE, metavar="FILE")
]


class Settings(Operations):
    """All settings: the operations that every process has, and the groups of what it runs."""

    rounds: Rounds = Rounds()
    learning: Learning = Learning()
    defence: Defence = Defence()
    privacy: PrivacySettings = PrivacySettings()
    unlearning: Unlearning = Unlearning()
    api: Api = Api()
    devices: Devices = Devices()

    @property
    def retry_for_s(self) -> float:
        """How long to retry a database that is unavailable at start, in seconds."""
        return math.inf if self.give_up_after_s is None else self.give_up_after_s


class Source(StrEnum):
    """The source of a value; later ones override."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True)
class LoadedSettings:
    """Settings, the source of each key that is set, and the file (None without one)."""

    settings: Settings
    sources: Mapping[str, Source]
    file: Path | None

    def values(self) -> Iterator[tuple[str, str, Any, Source]]:
        """Yield group, key, value and source of every setting."""
        for key, name in GROUP_OF.items():
            group = self.settings if GROUPS[name] is Operations else getattr(self.settings, name)
            yield name, key, getattr(group, key), self.sources.get(key, Source.DEFAULT)


def takes_settings(keys: Iterable[str], options: Options = NONE) -> Callable[[Command], Command]:
    """Add ``--config`` and an option per setting to a command. It receives them as ``**flags``."""
    config = Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=ConfigFile)
    return takes_parameters([*(field_parameter(GROUPS[GROUP_OF[key]], key, options) for key in keys), config])


def load_settings(**flags: Any) -> Settings:
    """Return the settings, overridden by the ``flags`` that are not None.

    Raises:
        SettingsError: one line that names each wrong key, with the allowed values.
    """
    return load_with_sources(**flags).settings


def load_with_sources(*, config: str | None = None, **flags: Any) -> LoadedSettings:
    """Return the settings as `load_settings` does, and the source of each."""
    file = _find_file(config)
    layers = {
        Source.FILE: {} if file is None else _read_file(file),
        Source.ENVIRONMENT: _read_environment(),
        Source.FLAG: _read_flags(flags),
    }
    values = {key: value for layer in layers.values() for key, value in layer.items()}
    sources = {key: source for source, layer in layers.items() for key in layer}
    grouped: dict[str, Any] = {name: {} for name in Settings.model_fields.keys() & GROUPS.keys()}
    for key, value in values.items():
        grouped.get(GROUP_OF[key], grouped)[key] = value
    try:
        return LoadedSettings(Settings(**grouped), sources, file)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise SettingsError("; ".join(_explain(problem, sources, file) for problem in problems)) from error


def _find_file(named: str | None) -> Path | None:
    chosen = named or os.environ.get(_FILE_VARIABLE)
    if chosen:
        return Path(chosen)
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def _read_file(path: Path) -> dict[str, Any]:
    """Read a file's values by key. Raises SettingsError for an unknown table or key, or a key in the wrong table."""
    try:
        tables = tomllib.loads(read_text_file(path, FileKind.SETTINGS))
    except OSError as error:
        cause = error.strerror
        raise SettingsError(f"config: {path}: {cause}; name another file, or write one: foltr config init") from error
    except (ValueError, RecursionError) as error:
        cause = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SettingsError(f"config: {path} is not TOML: {cause}; write it as foltr config init does") from error
    values: dict[str, Any] = {}
    problems = []
    for name, table in tables.items():
        if name in GROUPS and isinstance(table, dict):
            values |= table
            problems += [_misplaced(key, name) for key in table if GROUP_OF.get(key) != name]
        else:
            problems.append(_misplaced(name, None))
    if problems:
        raise SettingsError("; ".join(problems) + f" (in {path})")
    return values


def _misplaced(key: str, table: str | None) -> str:
    """Describe the error of a key in this table, or outside all tables."""
    if key in GROUP_OF:
        return f"{key}: it belongs in the table [{GROUP_OF[key]}]" + (f", not [{table}]" if table else "")
    if table is None and key in GROUPS:
        return f"{key}: it is a table; write [{key}]"
    options = {option_name(GROUPS[name], one).strip("-").replace("-", "_"): one for one, name in GROUP_OF.items()}
    known = [*GROUP_OF] if table else [*GROUP_OF, *GROUPS]
    meant = options.get(key.replace("-", "_")) or _close_to(key, known)
    return f"{key}: unknown setting; {_instead(meant, GROUP_OF)}"


def _read_environment() -> dict[str, str]:
    values, others = {}, _OTHER_VARIABLES
    for variable in sorted(os.environ):
        if variable in VARIABLES:
            values[VARIABLES[variable]] = os.environ[variable]
        elif variable.startswith(ENV_PREFIX) and not variable.startswith(_TEST_PREFIX) and variable not in others:
            known = {*VARIABLES, *others}
            raise SettingsError(f"{variable}: unknown setting; {_instead(_close_to(variable, known), known)}")
    return values


def _read_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for group in GROUPS.values():
        values |= read_values(group, {key: flags[key] for key in group.model_fields if key in flags})
    return values


def _explain(problem: Any, sources: Mapping[str, Source], file: Path | None) -> str:
    """Name a wrong key, its value and source, the allowed values and the default."""
    first, *rest = map(str, problem["loc"])
    key = rest[0] if first in GROUPS else first
    group = GROUPS[GROUP_OF[key]]
    origin = {
        Source.FILE: f"in {file}",
        Source.ENVIRONMENT: f"{ENV_PREFIX}{key.upper()}",
        Source.FLAG: option_name(group, key),
    }[sources[key]]
    default = default_of(group, key)
    without = "it need not be set" if default is None else f"the default is {default}"
    return f"{key}: {problem['msg']}, not {problem['input']!r:.60} ({origin}); {without}"


def _close_to(name: str, known: Collection[str]) -> str | None:
    """Return the known name closest to a mistyped one, or None."""
    lowered = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.75)
    return lowered[close[0]] if close else None


def _instead(meant: str | None, known: Collection[str]) -> str:
    return f"did you mean {meant}?" if meant is not None else f"known are {', '.join(sorted(known))}"
