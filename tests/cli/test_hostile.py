"""No command breaks over what it is given: it says what is wrong and what to do, soon, and in little memory.

There are some 32,000 cases: by day 25 of them are tried, at night one of each command and 150 more. With
FOLTR_TEST_HOSTILE=all it is all of them, which takes an hour or two, and with a number so many.
"""

import asyncio
import json
import os
import random
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from cli.commands import IS_NIGHT, foltr
from cli.hostile import COMPUTES, SERVES, Case, cases, commands, is_number, make_hostile_files
from support.broker_folders import ME
from support.completed_process import completed
from support.erasure_receipts import KEY, RECEIPT
from support.history_database import made_history

from foltr.cli.privacy.privacy import NoiseOptions
from foltr.cli.settings import GROUPS
from foltr.core.erasure.receipt import sign_receipt
from foltr.edge_client.store.store import DeviceStore

try:
    from foltr_research.simulation.config import SimulationConfig
except ImportError:  # its commands are not there either
    SIMULATED: tuple[Any, ...] = ()
else:
    SIMULATED = (SimulationConfig,)

WANTED = os.environ.get("FOLTR_TEST_HOSTILE", "150" if IS_NIGHT else "25")
# Another seed draws other cases.
SEED = int(os.environ.get("FOLTR_TEST_SEED", "20261126"))
RUNNER = Path(__file__).with_name("hostile_runner.py")
SCHEMA = """{"name": "shop", "version": 1, "features": [{"name": "bm25", "scaling": "log", "high": 40},
  {"name": "age", "scaling": "per_query"}]}"""
_LIMITS = (("ge", "gt"), ("le", "lt"))
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def make_folder(folder: Path) -> None:
    """Files of every kind that commands read, each as the command that writes it has written it."""
    folder.mkdir()
    federation = {"FOLTR_FEDERATION": "mail"}
    for words in (
        ("broker", "config", "--out", "mosquitto", "--tls", "--operator", "foltr-operator", "--user", ME),
        ("device", "enrol", "device-1", "--privacy", "secure"),
        ("device", "enrol", "device-2", "--token", "--out", "token.json"),
        ("helper", "enrol", "north", "--out", "north.json"),
        ("helper", "enrol", "south", "--out", "south.json"),
        ("helper", "keys", "--credentials", "north.json", "--store", "north.sqlite", "--out", "north.keys.json"),
        ("helper", "keys", "--credentials", "south.json", "--store", "south.sqlite", "--out", "south.keys.json"),
        ("policy", "new", "--helper", "north.keys.json", "--helper", "south.keys.json"),
        ("api", "token", "new", "viewer"),
        ("device", "revoke", "device-1", "--offline"),
    ):
        foltr(*words, cwd=folder, **federation, code=0)
    (folder / "schema.json").write_text(SCHEMA)
    (folder / "receipt.jws").write_text(sign_receipt(RECEIPT, KEY))
    (folder / "letor").mkdir()
    lines = "".join(f"{grade} qid:{query} 1:{grade / 2} 2:0.{query}\n" for query in range(1, 9) for grade in (0, 1, 2))
    for name in ("train.txt", "test.txt"):
        (folder / "letor" / name).write_text(lines)
    DeviceStore(folder / "device.sqlite", client_id="device-1", federation="mail", max_interactions=10).close()
    # What is compiled is kept, so that no case has to wait for it.
    foltr("fit", "--data", "letor/train.txt", "--schema", "schema.json", "--out", "model.json", cwd=folder, code=0)
    foltr("simulate", "--data", "letor", "--clients", 2, "--rounds", 2, "--interactions", 1, cwd=folder, code=0)
    asyncio.run(made_history(f"sqlite:///{folder}/f.sqlite", "mail"))
    foltr("backup", "create", "made", "--db", "sqlite:///f.sqlite", cwd=folder, code=0)
    next((folder / "made").iterdir()).rename(folder / "backup")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of loopback that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def chosen(found: list[Case]) -> list[Case]:
    """All of them, or a sample that is the same every time: at night with one of each command."""
    if WANTED == "all":
        return found
    draw = random.Random(SEED)  # noqa: S311 (a sample, no secret)
    by_command: dict[str, list[Case]] = {}
    for case in found:
        by_command.setdefault(case.command, []).append(case)
    each = [draw.choice(of_one) for of_one in by_command.values()] if IS_NIGHT else []
    return [*each, *draw.sample(found, int(WANTED))]


def trouble_of(case: Case, ended: dict) -> str | None:
    """What is wrong with how a command ended; None where nothing is."""
    code, text = ended["code"], ended["err"]
    if "Traceback" in text or (code < 0 and not ended["ended"]):
        return "traceback"
    if ended["ended"]:
        serves = case.command in SERVES and code in (0, 3, 130)
        computes = case.command in COMPUTES and not case.reads_file
        return None if serves or computes else "hang"
    if code not in (0, 1, 2, 3, 130):
        return "exit code"
    if code in (2, 3) and not text.strip():
        return "no error"
    if _CONTROL.search(text):
        return "control characters"
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    if errors and not (len(errors[-1]) < 2000 and len(errors[-1].split()) > 4):
        return "error of another length"
    return None


@pytest.mark.timeout(14_400 if WANTED == "all" else 600)
def test_no_hostile_value_breaks_a_command(tmp_path, closed_port):
    """Each option of each command, variables, and files nobody names: no traceback, no hang, a documented exit code."""
    made, files = tmp_path / "made", tmp_path / "files"
    make_folder(made)
    names = make_hostile_files(files)
    found = cases(files, names, made, closed_port)
    assert {case.command for case in found} >= {name for name, command in commands() if len(command.params) > 1}
    drawn = chosen(found)
    setup = {"work": str(tmp_path), "made": str(made), "files": str(files)}
    requests = [{"number": number, "goes_on": goes_on(case), **vars(case)} for number, case in enumerate(drawn)]
    done = completed(
        [sys.executable, RUNNER],
        input="\n".join(json.dumps(one) for one in (setup, *requests)),
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        timeout=None,  # as many commands as a night asks for
    )
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ended) == len(drawn), done.stderr[-2000:]
    results = [(str(drawn[one["number"]]), trouble_of(drawn[one["number"]], one), one) for one in ended]
    if report := os.environ.get("FOLTR_TEST_HOSTILE_REPORT"):
        lines = (json.dumps({"case": case, "trouble": trouble, **one}) for case, trouble, one in results)
        Path(report).write_text("".join(f"{line}\n" for line in lines))
    told = [f"{trouble}: {case}\n{one['err'][-600:]}" for case, trouble, one in results if trouble is not None]
    assert not told, f"{len(told)} of {len(drawn)} cases\n" + "\n".join(told[:20])


def goes_on(case: Case) -> str:
    """How a command that takes a value may go on: one that is to read a file must end."""
    if case.command in SERVES:
        return "serves"
    return "computes" if case.command in COMPUTES and not case.reads_file else ""


def test_every_number_of_an_option_has_bounds_where_it_is_declared():
    """By the least and the most of its option, or by those of the field that it is made of."""
    unbounded = [
        f"foltr {name} {parameter.opts[0]}"
        for name, command in commands()
        for parameter in command.params
        if is_number(parameter) and not (has_limits(parameter) or is_bounded_field(parameter.name))
    ]
    assert unbounded == []


def has_limits(parameter: Any) -> bool:
    return None not in (getattr(parameter, "min", None), getattr(parameter, "max", None))


def is_bounded_field(name: str) -> bool:
    models, names = (*GROUPS.values(), *SIMULATED, NoiseOptions), (name, f"{name}_s")
    fields = [model.model_fields[one] for model in models for one in names if one in model.model_fields]
    return bool(fields) and all(is_bounded(field) for field in fields)


def is_bounded(field: Any) -> bool:
    """Whether a field has a least and a most: said of it, or of the type it may also be None of."""
    limits = [*field.metadata, *(one for part in get_args(field.annotation) for one in get_args(part)[1:])]
    said = [one for limit in limits for one in (getattr(limit, "metadata", None) or [limit])]
    return {True} == {any(hasattr(one, name) or hasattr(one, also) for one in said) for name, also in _LIMITS}
