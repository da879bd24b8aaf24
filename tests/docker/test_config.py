"""The Compose files as Compose reads them, with each profile: what runs, from which image, and what it may do."""

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cli.commands import PROJECT
from support.completed_process import completed
from support.waiting import PATIENCE_S

from foltr.core.version import __version__

DOCKER = PROJECT / "docker"
TRIAL, PRODUCTION, HELPER = "compose.yaml", "compose.production.yaml", "compose.helper.yaml"
MONITORING = {"prometheus", "alertmanager", "grafana"}
# The services without a profile, and those that each profile adds.
SERVICES = {
    TRIAL: {
        "": {"setup", "mosquitto", "postgres", "federator", "edge-client", "dashboard"},
        "workers": {"ingest"},
        "monitoring": MONITORING,
    },
    PRODUCTION: {
        "": {"setup", "mosquitto", "postgres", "migrate", "announce", "federator", "desk", "dashboard"}
        | {"helper-north", "helper-south"},
        "trial": {"edge-client"},
        "monitoring": MONITORING,
        "operator": {"operator"},
    },
    HELPER: {"": {"helper"}},
}
ONCE = {"setup", "migrate", "announce", "operator"}
PAGES = {"dashboard": "127.0.0.1:8680:8680"}
WATCHED = PAGES | {"alertmanager": "127.0.0.1:9093:9093", "grafana": "127.0.0.1:3000:3000"}
# At which address of the machine each port is published, with all profiles.
PORTS = {TRIAL: WATCHED, PRODUCTION: WATCHED | {"mosquitto": "8883:8883"}, HELPER: {"helper": "127.0.0.1:9464:9464"}}
BROKER_URL = "mqtts://broker.example.org:8883"


@functools.cache
def compose() -> tuple[str, ...]:
    """Return Docker's Compose if it is here, else podman-compose."""
    if shutil.which("docker") is not None:
        docker = ("docker", "compose")
        if subprocess.run([*docker, "version"], capture_output=True, timeout=PATIENCE_S, check=False).returncode == 0:
            return docker
    # Even to print a file it asks podman for its version, which any program has.
    return str(Path(sys.executable).with_name("podman-compose")), "--podman-path", sys.executable


def config(file, *profiles, **variables):
    """Have a Compose file read, with these variables of ours only. Return the ended process."""
    names = [word for profile in profiles if profile for word in ("--profile", profile)]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("FOLTR_", "COMPOSE_"))}
    command = [*compose(), "-f", str(file), *names, "config"]
    return completed(command, env=plain | variables)


@functools.cache
def services(file, *profiles, **variables):
    """Return the services of a file, resolved. Nothing that it needs may be missing."""
    done = config(DOCKER / file, *profiles, FOLTR_BROKER_URL=BROKER_URL, **variables)
    assert done.returncode == 0, done.stderr
    assert "not set" not in done.stderr
    return yaml.safe_load(done.stdout)["services"]


@pytest.mark.parametrize(
    ("file", "profile"), [(file, profile) for file, those in SERVICES.items() for profile in those]
)
def test_a_profile_adds_its_services_and_no_others(file, profile):
    """No simulated device runs in production unless the profile `trial` asks for it."""
    assert services(file, profile).keys() == SERVICES[file][""] | SERVICES[file][profile]


@pytest.mark.parametrize("file", SERVICES)
def test_every_service_is_limited_and_its_image_is_one_certain(file):
    """Ours has the version of the package as its tag; one of others has a digest."""
    for name, service in services(file, *SERVICES[file]).items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert int(service["pids_limit"]) > 0, name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        assert service["mem_limit"], name
        assert float(service["cpus"]) in {1.0, 2.0}, name
        assert name == "setup" or ("cap_add" not in service and service.get("user", "10001") != "0:0"), name
        # What is done once does not come back, nor does a device that was forgotten.
        comes_back = "on-failure" if name == "edge-client" else "unless-stopped"
        assert service["restart"] == ("no" if name in ONCE else comes_back), name
        image = service["image"]
        ours, version = re.fullmatch(r"(localhost/foltr_[a-z-]+)?:?(.+)", image).groups()
        assert bool(ours) == ("build" in service), name
        assert version == __version__ if ours else re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", image), name


@pytest.mark.parametrize("file", SERVICES)
def test_only_documented_ports_are_published(file):
    """The broker of production is reached from outside; what else is published, from this machine only."""
    found = {
        name: published(port)
        for name, service in services(file, *SERVICES[file]).items()
        for port in service.get("ports", ())
    }
    assert found == PORTS[file]


def published(port):
    """A port as written: Docker's Compose prints its parts."""
    if isinstance(port, str):
        return port
    address = f"{port['host_ip']}:" if "host_ip" in port else ""
    return f"{address}{port['published']}:{port['target']}"


def test_an_operator_sets_the_processors_and_how_many_tokens_there_are():
    """All containers at once, and the federator and PostgreSQL apart. Without an order no device is handed a token."""
    given = {"FOLTR_CPUS": "0.5", "FOLTR_FEDERATOR_CPUS": "4", "FOLTR_POSTGRES_CPUS": "3", "FOLTR_DEVICES": "20"}
    found, apart = services(PRODUCTION, **given), {"federator": 4.0, "postgres": 3.0}
    assert {name: float(service["cpus"]) for name, service in found.items()} == {
        name: apart.get(name, 0.5) for name in found
    }
    assert found["setup"]["environment"]["DEVICES"] == "20"
    assert services(PRODUCTION, "")["setup"]["environment"]["DEVICES"] == "0"


def test_the_brokers_name_and_port_are_those_that_devices_elsewhere_use():
    """The containers find it by them, too; and the operator's commands write no other address into credentials."""
    found = services(PRODUCTION, *SERVICES[PRODUCTION], FOLTR_HOST="broker.example.org", FOLTR_PORT="8900")
    assert published(found["mosquitto"]["ports"][0]) == "8900:8900"
    assert found["mosquitto"]["networks"]["broker"]["aliases"] == ["broker.example.org"]
    made_for = found["setup"]["environment"]
    assert (made_for["HOST"], made_for["PORT"]) == ("broker.example.org", "8900")
    variables = {name: service.get("environment", {}) for name, service in found.items()}
    urls = {name: of.get("FOLTR_BROKER_URL") for name, of in variables.items()}
    assert set(urls.values()) == {None, "mqtts://mosquitto:8900"}
    assert urls.get("operator") is None


def test_what_is_missing_is_named(tmp_path):
    """A helper needs its broker's address; and docker/.env, in whose place another --env-file is read."""
    unknown = config(DOCKER / HELPER)
    alone = config(shutil.copy(DOCKER / HELPER, tmp_path), FOLTR_BROKER_URL=BROKER_URL)
    for done, named in ((unknown, "the federation's broker"), (alone, "see docker/.env")):
        assert done.returncode != 0
        assert named in done.stderr
