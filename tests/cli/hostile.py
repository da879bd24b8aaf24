"""Hostile values for every option of every command, by what the option takes; commands are found by looking."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from foltr.cli.commands import ALL_COMMANDS, load_command
from foltr.cli.settings import GROUP_OF, GROUPS, VARIABLES

# 23 digits, and more than Python makes a number of.
_LONG, _LONGER = "1" * 23, "9" * 5000
NUMBERS: Final = (
    *("1e-320", "1e308", "1e999", "nan", "inf", "-inf", "-0", "0", "-1", "1", "0.5", "x", ""),
    *(str(2**31), str(2**63), _LONG, _LONGER, "\udcff"),
)
NAMES: Final = (
    *("x" * 300, "x" * 64, "é" * 100, "", " ", ".", "..", "/", "a/b", "a\nb", "a\x1b[2Jb", "a%00b", "\\x00"),
    "\udcff\udcfe",
    *("[bold]", "@federator", "-", "$HOME", "~", "nul", "0", "-1", "1e999", _LONG, "=", "a=", "x=1e999", "beta=nan"),
)
URLS: Final = (
    *("x", "mqtt://", "mqtt://:", "mqtt://127.0.0.1:0", f"mqtt://127.0.0.1:{_LONG}", "mqtt://127.0.0.1:-1"),
    *("mqtt://[::1", "mqtts://\udcff", "mqtt://" + "a" * 300, "mqtt://u:p%@127.0.0.1:1", "sqlite:///", "sqlite://\n"),
    *("postgresql://", "postgresql://127.0.0.1:1/" + "x" * 300, "http://127.0.0.1:1/\n", "http://["),
    "ws://127.0.0.1:1/x",
)
DEPTH = 100_000
ENDLESS = 3_000_000_000


@dataclass(frozen=True)
class Case:
    """One command with one hostile value.

    Attributes:
        replaces: a file of the folder that the command runs in, in whose place a hostile file is put.
        hostile: that file's name in the folder of hostile files.
        reads_file: the value is a file, so that a command that does not end is one that waits for it.
    """

    words: tuple[str, ...]
    command: str
    variables: Mapping[str, str] = field(default_factory=dict)
    replaces: str | None = None
    hostile: str | None = None
    reads_file: bool = False

    def __str__(self) -> str:
        put = "" if self.replaces is None else f" [{self.replaces} is {self.hostile}]"
        return f"foltr {' '.join(ascii(word)[:60] for word in self.words)} {dict(self.variables) or ''}{put}"


def make_hostile_files(folder: Path) -> list[str]:
    """Write files of every kind that is not what a command asks for; return their names."""
    folder.mkdir()
    texts: dict[str, bytes] = {
        "empty": b"",
        "deep.json": b"[" * DEPTH,
        "deep-objects.json": b'{"a":' * DEPTH + b"1" + b"}" * DEPTH,
        "truncated.json": b'{"version": 1, "role": "device", "federat',
        "array.json": b"[]",
        "null.json": b"null",
        "number.json": b"1e999",
        "digits.json": b'{"version": ' + b"1" * 5000 + b"}",
        "fields.json": json.dumps({"entries": [1], "version": 1, "name": "x" * 300, "role": ["device"]}).encode(),
        "same.json": b'{"entries": 1, "entries": {"a": null}, "\xed\xa0\x80": 2}',
        "surrogate.json": b'{"name": "\\ud800", "federation": "\\u0000"}',
        "not-utf-8": b"\xff\xfe\x00\xd8" * 50,
        "bomb.msgpack": b"\xdd\xff\xff\xff\xff" * 1000,
        "deep.msgpack": b"\x91" * DEPTH,
        "line": b"1 qid:1 1:0.5" + b" 1:0.5" * 20_000,
        "letor": b"1e999 qid:99999999999999999999999 4294967296:nan\n-1 qid: :\n",
        "toml": b"x = " + b"[" * DEPTH,
        "numpy": b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999,), }"
        + b" " * 40,
        "zip": b"PK\x03\x04" + b"\x00" * 100,
        "pem": b"-----BEGIN CERTIFICATE-----\n" + b"A" * 5000 + b"\n-----END CERTIFICATE-----\n",
        "sqlite": b"SQLite format 3\x00" + b"\xff" * 4096,
    }
    for name, content in texts.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo", 0o600)
    (folder / "loop").symlink_to("loop")
    (folder / "unreadable").write_bytes(b"x")
    (folder / "unreadable").chmod(0)
    with (folder / "endless").open("wb") as file:  # a file with holes takes no room
        file.truncate(ENDLESS)
    (folder / "endless").chmod(0o600)
    names = sorted(path.name for path in folder.iterdir())
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "full").symlink_to("/dev/full")
    return [*names, "zero", "full", "missing"]


# By option, where a command has it: what lets it go on to read the others. The files are those of `made_folder`.
BASE: Final = {
    "--operator": "foltr-operator",
    "--broker": "mqtt://127.0.0.1:{port}",
    "--db": "sqlite:///f.sqlite",
    "--give-up-after": "0.2",
}
# By command: as BASE, and good arguments.
MORE: Final[Mapping[str, tuple[str, ...]]] = {
    "simulate": ("--data", "letor", "--clients", "2", "--rounds", "1", "--interactions", "1"),
    "sweep": ("--data", "letor", "--clients", "2", "--rounds", "1", "--folds", "1", "--seeds", "1", "--out", "t.csv"),
    "demo": ("--data", "letor"),
    "demo-forget": ("--data", "letor", "--clients", "2", "--rounds", "1"),
    "demo-secure": ("--data", "letor", "--clients", "10", "--rounds", "1"),
    "attacks run": ("lie", "--data", "letor", "--id", "device-1"),
    "client run": ("--data", "letor", "--id", "device-1"),
    "client enrol": ("--token", "token.json", "--wait", "1"),
    "federator run": ("--allow-unsigned",),
    "helper run": ("--credentials", "north.json", "--store", "north.sqlite"),
    "helper enrol": ("west",),
    "helper keys": ("--credentials", "north.json", "--store", "north.sqlite"),
    "schema new": ("mail", "--out", "s.json", "--feature", "bm25:0:40"),
    "schema show": ("schema.json",),
    "schema publish": ("schema.json",),
    "fit": ("--data", "letor/train.txt", "--schema", "schema.json", "--out", "m.json"),
    "models export": ("--out", "m.npy"),
    "models from-feature": ("bm25", "--schema", "schema.json", "--out", "m.json"),
    "policy new": ("--helper", "north.keys.json", "--helper", "south.keys.json"),
    "device enrol": ("device-9",),
    "device revoke": ("device-1", "--offline"),
    "device tokens": ("--revoke", "device-1"),
    "erasure request": ("--credentials", "foltr-operator/device-1.json", "--timeout", "1"),
    "rounds replay": ("1",),
    "rounds show": ("latest",),
    "rounds deadline": ("1", "--max-time", "60"),
    "device show": ("device-1",),
    "device quarantine": ("device-1", "--reason", "x"),
    "erasure show": ("device-1",),
    "erasure allow-reset": ("1",),
    "erasure verify": ("receipt.jws", "--key", "foltr-operator/device-1.json"),
    "erasure log-head": ("--key", "foltr-operator/device-1.json"),
    "erasure verify-log": ("--key", "foltr-operator/device-1.json"),
    "privacy budget": ("--store", "device.sqlite"),
    "broker worker": ("w1",),
    "broker readmit": ("foltr-operator/device-1.json",),
    "broker config": ("--out", "mosquitto", "--tls", "--federation", "mail"),
    "api token new": ("viewer",),
    "api token revoke": ("0000",),
    "reproduce": ("pdgd", "--scale", "quick"),
    "data get": ("nothing",),
    "backup create": ("backups",),
    "backup verify": ("backup",),
    "backup restore": ("backup", "--yes"),
}
# What is computed until it is done: a good value may take an hour, and the case ends it.
COMPUTES: Final = frozenset({"simulate", "sweep", "reproduce", "fit"})
# What goes on until it is stopped, and then ends in order.
SERVES: Final = frozenset(
    {"broker run", "api run", "attacks run", "client run", "federator run", "helper run", "operator desk", "demo"}
    | {"demo-forget", "demo-secure"}
)
# What is put in place of a file of a folder: one of each kind of what can be wrong.
IN_PLACE: Final = (
    *("empty", "deep.json", "deep-objects.json", "truncated.json", "fields.json", "number.json", "not-utf-8"),
    *("folder", "fifo", "loop", "unreadable", "endless", "zero"),
)


def commands() -> Iterator[tuple[str, Any]]:
    """List every command with its words, also those of groups."""
    for name in ALL_COMMANDS:
        yield from _below(name, load_command(name))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, one in inner.items():
        yield from _below(f"{name} {word}", one)


def cases(files: Path, names: list[str], folder: Path, port: int) -> list[Case]:
    """List every case: each parameter of each command with each value, each variable, each file of the folder."""
    found: list[Case] = []
    for name, command in commands():
        for parameter in command.params:
            if not getattr(parameter, "is_flag", False):
                found += _cases_of(name, command, parameter, files, names, port)
    return [*found, *_variables(files, names, port), *_folders(folder, port)]


def _cases_of(name: str, command: Any, parameter: Any, files: Path, names: list[str], port: int) -> Iterator[Case]:
    takes_number = is_number(parameter)
    for value in NUMBERS if takes_number else (*NAMES, *URLS):
        yield Case(_words(name, command, port, {parameter.name: value}), name)
    for file in () if takes_number else names:
        path = str(files / file)
        value = f"sqlite:///{path}" if "--db" in parameter.opts else path
        yield Case(_words(name, command, port, {parameter.name: value}), name, reads_file=True)


def is_number(parameter: Any) -> bool:
    descriptor = getattr(parameter, "type_descriptor", None)
    kind = parameter.type.name if descriptor is None else getattr(descriptor.annotation, "__name__", "")
    return kind.removesuffix("eger").removesuffix(" range") in ("int", "float", "integer")


def _words(name: str, command: Any, port: int, hostile: Mapping[str, str]) -> tuple[str, ...]:
    """The words of a command with good values, but for the parameters named."""
    good = _good(name, command, port)
    words, arguments = [*name.split()], []
    for parameter in command.params:
        values = [hostile[parameter.name]] if parameter.name in hostile else good.get(parameter.name, [])
        is_argument = not parameter.opts[0].startswith("-")
        for value in values:
            if is_argument:
                arguments.append(value)
            elif getattr(parameter, "is_flag", False):
                words.append(parameter.opts[0])
            else:
                words.append(f"{parameter.opts[0]}={value}")
    return (*words, *(("--", *arguments) if arguments else ()))


def _good(name: str, command: Any, port: int) -> dict[str, list[str]]:
    by_option = {option: one for one in command.params for option in one.opts}
    arguments = iter(one for one in command.params if not one.opts[0].startswith("-"))
    good: dict[str, list[str]] = {}
    for option, value in BASE.items():
        # A broker's or an operator's folder is nothing to an `enrol` or `config` that writes its own.
        if option in by_option:
            good[by_option[option].name] = [value.format(port=port)]
    words = iter(MORE.get(name, ()))
    for word in words:
        if not word.startswith("--"):
            good.setdefault(next(arguments).name, []).append(word)
        elif getattr(by_option[word], "is_flag", False):
            good[by_option[word].name] = [""]
        else:
            good.setdefault(by_option[word].name, []).append(next(words))
    return good


def _variables(files: Path, names: list[str], port: int) -> Iterator[Case]:
    """Settings from the environment, and a settings file that is none."""
    found = dict(commands())
    for file in names:
        path = str(files / file)
        for name in ("db current", "federator run", "api token list"):
            yield Case(_words(name, found[name], port, {}), name, {"FOLTR_CONFIG": path}, reads_file=True)
    name, command = "federator run", found["federator run"]
    for variable, key in VARIABLES.items():
        for value in NUMBERS if isinstance(getattr(GROUPS[GROUP_OF[key]](), key), int | float) else NAMES:
            yield Case(_words(name, command, port, {}), name, {variable: value})


def _folders(folder: Path, port: int) -> Iterator[Case]:
    """Files that a command reads without that anybody names them: each in turn is none."""
    inside = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    for name, command in commands():
        options = {option for one in command.params for option in one.opts}
        good = " ".join(_words(name, command, port, {}))
        for file in inside:
            if (file.startswith("foltr-operator/") and "--operator" in options) or file in good:
                for hostile in IN_PLACE:
                    yield Case(_words(name, command, port, {}), name, replaces=file, hostile=hostile, reads_file=True)
