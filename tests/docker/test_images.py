"""The containers, as far as they can be tested without Docker: pins, entry points, the Compose file."""

import importlib.metadata
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from cli.commands import FOLTR, PROJECT, environment, foltr_process
from compose_spec import PyCompose

from foltr.cli.settings import ENV_PREFIX, Settings

DOCKER = PROJECT / "docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())


def pins(file: str) -> dict[str, set[str]]:
    """The pinned packages of a file with their versions: one, or one for each Python version."""
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==([^ ]+)", (DOCKER / file).read_text(), flags=re.MULTILINE):
        versions.setdefault(name, set()).add(version)
    return versions


def test_the_compose_file_is_one_by_the_compose_specification():
    """Parsed and validated against the specification, with every service there."""
    parsed = PyCompose.from_yaml((DOCKER / "compose.yaml").read_text())
    assert sorted(parsed.service_names()) == ["edge-client", "federator", "mosquitto", "postgres"]


def test_what_compose_sets_are_settings():
    """No variable is misspelled: foltr would refuse to start."""
    known = {ENV_PREFIX + name.upper() for name in Settings.model_fields}
    for service in ("federator", "edge-client"):
        assert set(COMPOSE["services"][service]["environment"]) <= known


def test_nothing_is_published_and_no_password_is_built_in():
    """Without access control no port is open to the outside; the database's password must be given."""
    for service in COMPOSE["services"].values():
        assert "ports" not in service
    password = COMPOSE["services"]["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert password.startswith("${POSTGRES_PASSWORD:?")


def test_devices_scale():
    """Nothing ties an edge client to one container: no fixed name, host name or port."""
    assert not {"container_name", "hostname", "ports"} & COMPOSE["services"]["edge-client"].keys()


def test_files_named_by_the_images_exist():
    """Dockerfiles and everything they copy from the repository."""
    for service in ("federator", "edge-client"):
        build = COMPOSE["services"][service]["build"]
        dockerfile = (DOCKER / build["context"] / build["dockerfile"]).resolve()
        text = dockerfile.read_text()
        pins_file = re.search(r"^ARG PINS=(.+)$", text, flags=re.MULTILINE)
        text = text.replace("${PINS}", pins_file[1] if pins_file else "")
        copied = re.findall(r"^COPY (?!--from)(\S+) ", text, flags=re.MULTILINE)
        assert copied
        for path in copied:
            assert (PROJECT / path).exists(), path


def test_a_device_image_has_no_database_and_no_compiler():
    """The device's pins are the base install."""
    unwanted = {"sqlalchemy", "alembic", "aiosqlite", "numba", "llvmlite", "scipy", "scikit-learn", "iotcore"}
    assert not unwanted & pins("edge-client.txt").keys()
    assert {"sqlalchemy", "asyncpg"} <= pins("federator.txt").keys()


@pytest.mark.parametrize("file", ["federator.txt", "edge-client.txt", "edge-client-simulation.txt", "build.txt"])
def test_images_get_the_versions_that_are_tested(file):
    """Each pin of an image is the version installed here."""
    for name, versions in pins(file).items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        assert installed in versions, name


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_device_image_installs_and_runs(tmp_path):
    """The same pins and wheel in an empty environment: ``foltr client run --help`` works, without SQLAlchemy."""
    python = tmp_path / "venv" / "bin" / "python"
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=bare, capture_output=True, text=True, timeout=200, check=True, cwd=tmp_path)

    run("python3", "-m", "venv", tmp_path / "venv")
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "-r", DOCKER / "edge-client.txt")
    run(*pip, "--require-hashes", "-r", DOCKER / "build.txt")
    wheel = (python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path)
    run(*wheel, PROJECT)
    run(*pip, "--no-deps", next(tmp_path.glob("*.whl")))
    assert "Usage" in run(tmp_path / "venv" / "bin" / "foltr", "client", "run", "--help").stdout
    run(python, "-c", "import edge_client.client, sys; assert 'sqlalchemy' not in sys.modules")


def test_the_federator_entry_point_upgrades_and_runs(mosquitto_server, tmp_path):
    """The script of the image, with ``foltr`` on the path: tables, then the federator, with its arguments."""
    scripts = tmp_path / "bin"
    scripts.mkdir()
    command = shlex.join(FOLTR)
    (scripts / "foltr").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    (scripts / "foltr").chmod(0o755)
    variables = environment(
        PATH=f"{scripts}:{os.environ['PATH']}",
        FOLTR_DB_URL=f"sqlite:///{tmp_path}/f.sqlite",
        FOLTR_BROKER_URL=mosquitto_server.url,
    )
    arguments = ("--allow-unsigned", "--min-time", "0", "--max-time", "1", "--rounds", "1", "--features", "4")
    done = subprocess.run(
        ["/bin/sh", DOCKER / "federator-entrypoint.sh", *arguments],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    listed = foltr_process("rounds", "list", "--db", f"sqlite:///{tmp_path}/f.sqlite")
    assert "no_updates" in listed.stdout
