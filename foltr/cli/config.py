"""``foltr config``: write a settings file, check one, and show each setting's value and source."""

import json as json_text
import re
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from foltr.broker.address import BrokerAddress
from foltr.cli import options
from foltr.cli.federator import RUN_KEYS, make_plan
from foltr.cli.fields import allowed_values, argument, default_of, option, unit_of
from foltr.cli.operator.identities import FederatorIdentity
from foltr.cli.output import print_rows, say
from foltr.cli.setting_groups import ENV_PREFIX, Group
from foltr.cli.settings import DEFAULT_FILE, GROUPS, ConfigFile, LoadedSettings, load_with_sources, takes_settings
from foltr.core.errors import SettingsError
from foltr.core.protocol.states import Privacy

app = typer.Typer(help="Write, check and show the settings.", no_args_is_help=True)

_WIDTH = 110
_PASSWORD = re.compile(r"(://[^:/@]*):[^/]*@")


@app.command("init")
def init(
    file: Annotated[Path, argument("Where to write it", metavar="FILE")] = DEFAULT_FILE,
    force: Annotated[bool, option("Replace a file that is there", "--force")] = False,
) -> None:
    """Write a settings file that explains every setting and sets none."""
    if file.exists() and not force:
        raise SettingsError(f"{file} exists; name another file, or add --force to replace it")
    file.write_text(settings_template(), encoding="utf-8")
    say(f"wrote {file}: remove the # in front of what you set, then: foltr config check")


@app.command("check")
def check(config: ConfigFile = None) -> None:
    """Check the settings as a federator does when it starts. Exits with 2 if something is wrong."""
    loaded = load_with_sources(config=config)
    settings = loaded.settings
    # With secure sums the rest depends on the operator's policy, which only the credentials contain.
    if settings.privacy.privacy is not Privacy.SECURE:
        make_plan(settings, FederatorIdentity(settings.federation, BrokerAddress.parse(settings.broker_url)))
    say(f"{_place(loaded)}: nothing is wrong; {len(loaded.sources)} settings are set")


@app.command("show")
@takes_settings(RUN_KEYS)
def show(json: options.Json = False, **flags: Any) -> None:
    """Show the value of every setting, and where it comes from: default, file, environment or flag."""
    loaded = load_with_sources(**flags)
    rows = [
        {"group": group, "key": key, "value": _shown(value), "source": str(source)}
        for group, key, value, source in loaded.values()
    ]
    print_rows(rows, title=f"Settings of {_place(loaded)}", as_json=json)


def settings_template() -> str:
    """Return a settings file with every setting as a comment: meaning, unit, bounds and variable."""
    parts = ["# Settings of foltr. A flag wins over the environment, the environment over this file."]
    for name, group in GROUPS.items():
        parts.append(f"# {(group.__doc__ or '').strip()}\n[{name}]")
        parts += ["\n".join(_template_lines(group, key)) for key in group.model_fields]
    return "\n\n".join(parts) + "\n"


def _template_lines(group: type[Group], key: str) -> Iterator[str]:
    field = group.model_fields[key]
    yield from textwrap.wrap(field.description or "", _WIDTH, initial_indent="# ", subsequent_indent="# ")
    facts = (unit_of(group, key), allowed_values(field), f"{ENV_PREFIX}{key.upper()}")
    yield f"# ({'; '.join(fact for fact in facts if fact)})"
    default = default_of(group, key)
    yield f"# {key} =" if default is None else f"# {key} = {toml_text(default)}"


def toml_text(value: Any) -> str:
    """Format a default as TOML."""
    return json_text.dumps(value.value if isinstance(value, Enum) else value)


def _shown(value: Any) -> Any:
    """Return a value for printing: an address without its password."""
    plain = value.value if isinstance(value, Enum) else value
    return _PASSWORD.sub(r"\1:***@", plain) if isinstance(plain, str) else plain


def _place(loaded: LoadedSettings) -> str:
    return f"{loaded.file or 'no file'}"
