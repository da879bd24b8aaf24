"""The commands and snippets of the documents that no other test runs; `test_inventory.py` says who runs which."""

import ast
import inspect
import json
import re
import shlex
import shutil

import numpy as np
import pytest
import yaml
from cli.commands import PROJECT, foltr, foltr_process, start, stop
from cli.snippets import blocks, commands_of, run_python
from docs.markdown_files import markdown_files, snippets
from httpx2 import AsyncClient
from sqlalchemy import text
from support.completed_process import completed
from support.databases import migrated_sqlite
from support.history_database import made_history
from support.servers import accepts, free_port
from support.waiting import PATIENCE_S, until

from foltr.cli.commands import COMMANDS
from foltr.core.methods.initial_models import InitialModel
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.trainings import LinearRankerSpec
from foltr.edge_client.client import EdgeClient
from foltr.storage.database import Database

MATRIX = [[12.0, 30.0, 0.5, 2.0], [3.0, 60.0, 0.1, 9.0], [25.0, 10.0, 0.9, 1.0]]


def checked(command, **more):
    """Run a command that has to end well; return what it printed."""
    return foltr(*command[1:], **more, code=0).stdout


async def test_the_queries_of_the_documents_run(migrated_url):
    """Each that a shell block hands to sqlite3 or to psql, on a history as a federator leaves it."""
    await made_history(migrated_url, "default")
    is_sqlite = migrated_url.startswith("sqlite")
    queries = [
        words[-1]
        for file in markdown_files()
        if not file.startswith("research/results/")
        for words in commands_of(file)
        if words[0] == ("sqlite3" if is_sqlite else "psql") and re.match(r"SELECT ", words[-1])
    ]
    database = Database(migrated_url)
    try:
        async with database.engine.connect() as connection:
            for query in queries:
                (await connection.execute(text(query))).all()
    finally:
        await database.close()
    assert queries


def test_the_demonstration_of_a_method(tmp_path):
    """As it stands there; the other two are run by the tests of what they show."""
    (command,) = [one for one in commands_of("docs/README.md", "foltr", "demo") if "--method" in one]
    foltr_process(*command[1:], cwd=tmp_path, code=0)


def test_the_commands_on_hostile_clients(tmp_path):
    """docs/robustness.md, on data that needs no network; those of quarantine belong to the walk-through."""
    commands = [one for one in commands_of("docs/robustness.md", "foltr") if one[1] != "device"]
    assert [command[1] for command in commands] == ["attacks", "simulate", "simulate"]
    for command in commands:
        checked(command, cwd=tmp_path, FOLTR_DATASET="synthetic")
    assert json.loads((tmp_path / "adaptive.json").read_text())["ndcg_at_10"]


def test_the_page_on_features(tmp_path):
    """Its schema is one, its snippets run with it, and its first model has the weights that it says."""
    declared, weights = blocks("docs/features.md", "json")
    normalising, ranking, fitting = blocks("docs/features.md", "python")
    (tmp_path / "schema.json").write_text(declared)
    schema = FeatureSchema.read(tmp_path / "schema.json")
    begin = (
        f"import numpy as np\nfrom foltr import SearchRanker\nmatrix = np.array({MATRIX})[:, :{len(schema.names)}]\n"
    )
    shown = run_python(
        f"{begin}{normalising}\nprint(features.min() >= 0, features.max() <= 1, features.shape)", tmp_path
    )
    assert shown == f"True True (3, {len(schema.names)})\n"
    foltr("device", "enrol", "device", cwd=tmp_path, FOLTR_BROKER_URL="mqtt://127.0.0.1:9", code=0)
    shown = run_python(f"{begin}{ranking}\nprint(sorted(map(int, serp.ranking)))\nranker.close()", tmp_path)
    assert shown == "[0, 1, 2]\n"
    logged = f"rows, clicked, queries = {MATRIX}, [0, 1, 0], ['tea'] * 3\n"
    fitted = f"from foltr import FirstModel\n{logged}{fitting}\nprint(serp.source)\nranker.close()"
    assert run_python(f"{begin}{ranking}\n{fitted}", tmp_path) == "base\n"
    assert InitialModel.read(tmp_path / "first.json").weights.keys() == set(schema.names)
    (tmp_path / "first.json").write_text(weights)
    model = InitialModel.read(tmp_path / "first.json")
    assert np.count_nonzero(model.weights_of(LinearRankerSpec(n_features=len(schema.names)), schema)) == 2


def test_schemas_are_made_as_on_the_page_on_features(tmp_path):
    """From a sample, and from names."""
    rows = "\n".join(f"{i},{i % 7 + 1}" for i in range(50))
    (tmp_path / "sample.csv").write_text(f"bm25,price\n{rows}\n")
    for command in commands_of("docs/features.md", "foltr", "schema"):
        checked(command, cwd=tmp_path)
        assert FeatureSchema.read(tmp_path / "schema.json").names == ["bm25", "price"]
        (tmp_path / "schema.json").unlink()


def test_the_policy_of_the_page_on_secure_sums(tmp_path):
    """It is made, shown and published, as in the federation that the page begins with."""
    walk, policy, *_ = (
        [shlex.split(line, comments=True) for line in block.splitlines()] for block in blocks("docs/privacy.md", "sh")
    )
    broker = {"FOLTR_BROKER_URL": "mqtt://127.0.0.1:9"}
    foltr("device", "enrol", "device", "--privacy", "secure", cwd=tmp_path, **broker, code=0)
    for command in [one for one in walk if one[1] == "helper" and one[2] in ("enrol", "keys")]:
        checked(command, cwd=tmp_path, **broker)
    new, show, publish = policy
    checked(new, cwd=tmp_path)
    assert checked(show, cwd=tmp_path).startswith("Policy 1")
    assert publish in walk


@pytest.mark.nightly
def test_attackers_take_part_as_on_the_page_on_devices(tmp_path):
    """Ten devices, three of which attack, in a federation that takes anybody; for one round."""
    port = free_port()
    access = {"FOLTR_BROKER_URL": f"mqtt://127.0.0.1:{port}", "FOLTR_DATASET": "synthetic"}
    (command,) = [one for one in snippets("docs/devices.md") if one.startswith("foltr attacks run")]
    migrated_sqlite(tmp_path / "foltr.sqlite")
    running = [start("broker", "run", "--port", str(port), cwd=tmp_path)]
    try:
        options = ("--allow-unsigned", "--min-clients", "10", "--min-time", "0")
        running.append(start("federator", "run", *options, cwd=tmp_path, **access))
        foltr_process(*shlex.split(command)[1:], "--rounds", "1", cwd=tmp_path, **access, code=0)
    finally:
        ended = [stop(process) for process in reversed(running)]
    assert [code for code, _ in ended] == [0, 0], ended


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
def test_prometheus_takes_the_configuration_of_the_page_on_monitoring(tmp_path):
    """With our rules, and a token in a file of the test."""
    (tmp_path / "token").write_text("x")
    shutil.copy(PROJECT / "monitoring/alerts.yml", tmp_path)
    (block,) = blocks("docs/monitoring.md", "yaml")
    (tmp_path / "prometheus.yml").write_text(block.replace("/etc/prometheus/foltr-token", f"{tmp_path}/token"))
    words = ["promtool", "check", "config", tmp_path / "prometheus.yml"]
    done = completed(words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_call_that_is_shown_alone_fits_its_function():
    """docs/devices.md: `forget_me` takes what is handed to it."""
    (snippet,) = blocks("docs/devices.md", "python")
    call = next(node for node in ast.walk(ast.parse(snippet)) if isinstance(node, ast.Call))
    assert isinstance(call.func, ast.Attribute)
    inspect.signature(getattr(EdgeClient, call.func.attr)).bind(None, **{one.arg: None for one in call.keywords})


def test_the_program_on_reproductions_names_what_there_is():
    """docs/reproductions.md: its data is to be had by request only, so of the run all but the run is tried."""
    (program,) = blocks("docs/reproductions.md", "python")
    names: dict = {}
    imports, calls = program.split("\n\n")
    exec(imports, names)  # noqa: S102 - the document is ours
    for call in (node for node in ast.walk(ast.parse(calls)) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Name) and call.func.id in names and call.func.id != "Path":
            given = {one.arg: None for one in call.keywords}
            inspect.signature(names[call.func.id]).bind(*call.args, **given)


def test_the_commands_for_containers_name_what_the_files_have():
    """docker/README.md: files, services and commands of foltr are there; `make containers-test` runs containers."""
    lines = [line for line in "\n".join(blocks("docker/README.md", "sh")).splitlines() if line.startswith("docker ")]
    assert len(lines) >= 10
    for line in lines:
        words = shlex.split(line)
        assert words[:3] == ["docker", "compose", "-f"]
        services = yaml.safe_load((PROJECT / words[3]).read_text())["services"]
        if words[4] in ("exec", "run"):
            rest = [word for word in words[5:] if not word.startswith("-")]
            assert rest[0] in services, line
            if rest[1] == "foltr":
                assert rest[2] in COMMANDS, line
        for scaled in re.findall(r"--scale (\S+)=", line):
            assert scaled in services, line


async def test_the_api_as_on_its_page(tmp_path):
    """A token is made, the server runs, and the request that the page shows is answered with it."""
    database, port = migrated_sqlite(tmp_path / "foltr.sqlite"), free_port()
    await made_history(database, "mail")
    made, run = commands_of("docs/api.md", "foltr", "api")[:2]
    token = checked(made, cwd=tmp_path).split()[0]
    options = [database if word.startswith("postgresql:") else word for word in run[1:]]
    options[options.index("--port") + 1] = str(port)
    (asking,) = [block for block in blocks("docs/api.md", "sh") if block.startswith("curl")]
    curl = shlex.split(asking.replace("$TOKEN", token))
    server = start(*options, cwd=tmp_path)
    try:
        await until(lambda: accepts(port), "the server does not listen")
        header, _, value = curl[curl.index("-H") + 1].partition(": ")
        url = curl[-1].replace(":8680", f":{port}")
        async with AsyncClient(timeout=PATIENCE_S) as client:
            answer = await client.get(url, headers={header: value})
        assert answer.status_code == 200
        assert answer.json()
    finally:
        stop(server)
