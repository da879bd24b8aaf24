"""What the services of docker/compose.yaml must agree on with each other and with foltr."""

import re
import runpy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from broker.address import BrokerAddress
from broker.mosquitto import MosquittoSettings, mosquitto_config
from foltr.cli.settings import ENV_PREFIX, Settings

DOCKER = Path(__file__).parents[2] / "docker"
TEXT = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
LISTENER: MosquittoSettings = runpy.run_path(str(DOCKER / "mosquitto_conf.py"))["SETTINGS"]

# As Compose replaces ${NAME:-default}; the one variable without a default is the password.
PROJECT: dict[str, Any] = yaml.safe_load(
    re.sub(r"\$\{\w+:([-?])([^}]*)\}", lambda match: match[2] if match[1] == "-" else "given", TEXT)
)
SERVICES: dict[str, dict[str, Any]] = PROJECT["services"]


def test_the_mosquitto_configuration_is_what_the_generator_writes() -> None:
    """If not: python docker/mosquitto_conf.py."""
    assert (DOCKER / "mosquitto.conf").read_text(encoding="utf-8") == mosquitto_config(LISTENER)
    assert f"mosquitto-data:{LISTENER.data_dir}" in SERVICES["mosquitto"]["volumes"]


@pytest.mark.parametrize("name", ["federator", "edge-client"])
def test_the_defaults_are_values_that_foltr_takes(name: str) -> None:
    variables = SERVICES[name]["environment"]
    values = {variable.removeprefix(ENV_PREFIX).lower(): str(value) for variable, value in variables.items()}
    settings = Settings(**values)  # type: ignore[arg-type]  # strings, as in an environment
    assert settings.model_fields_set == set(values)


def test_a_variable_keeps_its_name_on_the_way_in() -> None:
    """FOLTR_X outside is FOLTR_X inside."""
    passed_on = re.findall(rf"^ +({ENV_PREFIX}\w+): \$\{{(\w+)", TEXT, flags=re.MULTILINE)
    assert passed_on
    assert all(inside == outside for inside, outside in passed_on)


def test_both_sides_speak_to_the_same_broker_and_federation() -> None:
    federator, device = (SERVICES[name]["environment"] for name in ("federator", "edge-client"))
    for variable in ("FOLTR_BROKER_URL", "FOLTR_FEDERATION"):
        assert federator[variable] == device[variable]
    assert BrokerAddress.parse(federator["FOLTR_BROKER_URL"]) == BrokerAddress("mosquitto", LISTENER.port)


def test_the_federator_finds_the_database() -> None:
    url = urlsplit(SERVICES["federator"]["environment"]["FOLTR_DB_URL"])
    database = SERVICES["postgres"]["environment"]
    assert url.hostname == "postgres"
    assert (url.username, url.password) == (database["POSTGRES_USER"], database["POSTGRES_PASSWORD"])
    assert url.path == "/" + database["POSTGRES_DB"]


def test_devices_share_no_name_and_no_store() -> None:
    """Twenty containers of one service get the same environment."""
    assert not {"FOLTR_CLIENT_ID", "FOLTR_STORE"} & SERVICES["edge-client"]["environment"].keys()


@pytest.mark.parametrize("name", list(SERVICES))
def test_a_service_comes_back_and_waits_for_what_it_needs(name: str) -> None:
    assert SERVICES[name]["restart"] == "unless-stopped"
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert "healthcheck" in SERVICES[needed]
