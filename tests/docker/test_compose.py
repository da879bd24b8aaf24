"""What the services of docker/compose.yaml must agree on with each other and with foltr."""

import os
import re
import runpy
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import yaml

from foltr.broker.address import BrokerAddress
from foltr.broker.mosquitto import MosquittoSettings, mosquitto_config
from foltr.cli.settings import load_with_sources

DOCKER = Path(__file__).parents[2] / "docker"
TEXT = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
LISTENER: MosquittoSettings = runpy.run_path(str(DOCKER / "mosquitto_conf.py"))["SETTINGS"]

# As Compose replaces ${NAME:-default}. test_config.py has the files read by Compose.
PROJECT: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", TEXT))
SERVICES: dict[str, dict[str, Any]] = PROJECT["services"]


def test_the_mosquitto_configuration_is_what_the_generator_writes() -> None:
    """If not: python docker/mosquitto_conf.py."""
    assert (DOCKER / "mosquitto.conf").read_text(encoding="utf-8") == mosquitto_config(LISTENER)
    assert f"mosquitto-data:{LISTENER.data_dir}" in SERVICES["mosquitto"]["volumes"]


def test_the_defaults_are_values_that_foltr_takes() -> None:
    """And both sides speak to the same broker and federation."""
    federator, device = (SERVICES[name]["environment"] for name in ("federator", "edge-client"))
    for variable in ("FOLTR_BROKER_URL", "FOLTR_FEDERATION"):
        assert federator[variable] == device[variable]
    assert BrokerAddress.parse(federator["FOLTR_BROKER_URL"]) == BrokerAddress("mosquitto", LISTENER.port)
    for name in ("federator", "edge-client", "dashboard"):
        variables = SERVICES[name]["environment"]
        values = {variable: str(value) for variable, value in variables.items() if variable != "FOLTR_CONFIG"}
        with mock.patch.dict(os.environ, values, clear=True):
            assert len(load_with_sources().sources) == len(values), name


def test_the_federator_finds_the_database(tmp_path: Path) -> None:
    """With the password that was made for both, which stays the same when it is asked for again."""
    script = ("/bin/sh", DOCKER / "database-password.sh", tmp_path)
    subprocess.run(script, check=True)
    password, settings = ((tmp_path / name).read_text() for name in ("password", "foltr.toml"))
    url = urlsplit(tomllib.loads(settings)["operations"]["db_url"])
    database = SERVICES["postgres"]["environment"]
    assert url.hostname == "postgres"
    assert (url.username, url.password) == (database["POSTGRES_USER"], password)
    assert len(password) == 48
    assert url.path == "/" + database["POSTGRES_DB"]
    subprocess.run(script, check=True)
    assert (tmp_path / "password").read_text() == password


def test_only_who_needs_the_password_has_it() -> None:
    """As a file: nothing secret is in an environment, where `inspect` shows it."""
    having = {name for name, service in SERVICES.items() if "database-password" in str(service.get("volumes"))}
    assert having == {"setup", "postgres", "federator", "ingest", "dashboard"}
    assert "POSTGRES_PASSWORD" not in TEXT.replace("POSTGRES_PASSWORD_FILE", "")


def test_devices_share_no_name_and_no_store() -> None:
    """Twenty containers of one service get the same environment, and keep what they learn in slots of a volume."""
    device = SERVICES["edge-client"]
    assert not {"FOLTR_CLIENT_ID", "FOLTR_STORE"} & device["environment"].keys()
    assert f"devices:{device['environment']['FOLTR_SLOTS']}" in device["volumes"]


def test_a_service_waits_for_what_it_needs() -> None:
    """For what is done once until it is done, for others until they are well."""
    for name, service in SERVICES.items():
        for needed, how in service.get("depends_on", {}).items():
            once = needed == "setup"
            assert how == {"condition": "service_completed_successfully" if once else "service_healthy"}, name
            # An image of ours has a check of its own.
            assert once or "healthcheck" in SERVICES[needed] or "build" in SERVICES[needed], name
