"""The containers, as far as they can be tested without Docker: pins, entry points, the Compose file."""

import importlib.metadata
import json
import os
import re
import runpy
import shutil
import subprocess
import time
import tomllib

import pytest
import yaml
from cli.commands import PROJECT, environment, foltr_process
from compose_spec import PyCompose
from support.completed_process import completed
from support.foltr_program import prepared_foltr
from support.waiting import PATIENCE_S

from foltr.cli.setting_groups import ENV_PREFIX
from foltr.cli.settings import VARIABLES

DOCKER = PROJECT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
PRODUCTION = yaml.safe_load((DOCKER / "compose.production.yaml").read_text())
PRODUCTION_SERVICES = PRODUCTION["services"]
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
HELPER = yaml.safe_load((DOCKER / "compose.helper.yaml").read_text())
PINS = runpy.run_path(str(DOCKER / "pin_images.py"))


def pins(file: str) -> dict[str, set[str]]:
    """The pinned packages of a file with their versions: one, or one for each Python version."""
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9-]+)==([^ ]+)", (DOCKER / file).read_text(), flags=re.MULTILINE):
        versions.setdefault(name, set()).add(version)
    return versions


def test_the_compose_files_are_some_by_the_compose_specification():
    """Parsed and validated against it, with every service there; what they set for foltr are settings."""
    given = dict(re.findall(r"^(\w+)=([^@\n]+)", (DOCKER / ".env").read_text(), re.MULTILINE))
    for file in (COMPOSE, PRODUCTION, HELPER):
        # Merged by YAML before: this reader of the specification knows no <<, no variables, no digest beside a tag.
        resolved = re.sub(r"\$\{(\w+):[-?]([^}]*)\}", lambda found: given.get(found[1], found[2]), yaml.safe_dump(file))
        parsed = PyCompose.from_yaml(resolved)
        assert set(parsed.service_names()) == file["services"].keys()
        variables = {name for service in file["services"].values() for name in service.get("environment", {})}
        assert {name for name in variables if name.startswith(ENV_PREFIX)} <= {*VARIABLES, "FOLTR_CONFIG"}


def test_the_database_is_apart_and_only_the_operator_has_the_enrolment_key():
    """The database is on a network that leads nowhere; what makes keys has no network."""
    services = PRODUCTION["services"]
    assert PRODUCTION["networks"]["database"]["internal"] is True
    on_database = {name for name, service in services.items() if "database" in service.get("networks", ())}
    assert on_database == {"postgres", "migrate", "federator", "dashboard"}
    having = {name for name, service in services.items() if "operator:/operator" in service.get("volumes", ())}
    assert having == {"setup", "announce", "desk", "operator"}
    assert services["setup"]["network_mode"] == "none"


def test_prometheus_scrapes_whoever_shows_metrics():
    """At the port that each of them has, over a network that both are on, with a token that only these two see."""
    for services in (COMPOSE["services"], PRODUCTION_SERVICES):
        prometheus = services["prometheus"]
        file = next(word for word in prometheus["command"] if "config.file" in word).rpartition("/")[2]
        config = yaml.safe_load((PROJECT / "monitoring" / file).read_text())
        scraped = {target for job in config["scrape_configs"] for target in targets_of(job)}
        showing = {
            f"{name}:{service['environment']['FOLTR_METRICS_PORT']}"
            for name, service in services.items()
            if "FOLTR_METRICS_PORT" in service.get("environment", {})
        }
        assert scraped == {"dashboard:8680", *showing}, services
        for target in scraped:
            assert set(services[target.partition(":")[0]]["networks"]) & set(prometheus["networks"]), services
        having = {name for name, service in services.items() if "monitoring-token" in str(service.get("volumes"))}
        assert having == {"dashboard", "prometheus"}, services
        (alertmanager,) = config["alerting"]["alertmanagers"][0]["static_configs"]
        assert alertmanager["targets"] == ["alertmanager:9093"], services
        assert set(services["alertmanager"]["networks"]) & set(prometheus["networks"]), services
        assert (PROJECT / "monitoring" / config["rule_files"][0]).exists(), services


def targets_of(job):
    """A service that may have many replicas, or none, is found by its name."""
    fixed = [target for of in job.get("static_configs", ()) for target in of["targets"]]
    return fixed + [f"{name}:{of['port']}" for of in job.get("dns_sd_configs", ()) for name in of["names"]]


def test_grafana_is_given_its_source_and_its_board():
    """The files that are mounted are there, and the source is Prometheus of the same file."""
    grafana = PRODUCTION_SERVICES["grafana"]
    for mount in grafana["volumes"]:
        assert mount.startswith("grafana-data:") or (DOCKER / mount.partition(":")[0]).exists()
    folder = PROJECT / "monitoring/grafana/provisioning"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((folder / "dashboards/foltr.yaml").read_text())["providers"]
    assert f"{provider['options']['path']}/foltr.json" in str(grafana["volumes"])


def test_images_run_as_nobody_in_particular_and_check_their_health_without_the_broker():
    """A check with the federator's credentials would throw its session out."""
    runtime = DOCKERFILE.partition(" AS runtime\n")[2]
    assert "USER 10001:10001" in runtime
    check = re.search(r"HEALTHCHECK.+\n +CMD (.+)$", runtime, flags=re.MULTILINE)[1]
    assert "foltr " not in check
    assert "FOLTR_ALIVE_FILE" in check


def test_the_health_check_looks_at_the_age_of_a_file(tmp_path):
    """The command of the image, run here: no file, a young one, an old one, one of before the clock was set back."""
    check = re.search(r"HEALTHCHECK.+\n +CMD (.+)$", DOCKERFILE, flags=re.MULTILINE)[1]
    file = tmp_path / "alive"
    for age_s, healthy in ((None, False), (5, True), (300, False), (-3600, False)):
        if age_s is not None:
            file.touch()
            os.utime(file, (time.time() - age_s,) * 2)
        variables = os.environ | {"FOLTR_ALIVE_FILE": str(file)}
        done = subprocess.run(json.loads(check), env=variables, capture_output=True, timeout=PATIENCE_S, check=False)
        assert (done.returncode == 0) == healthy, age_s


def test_nothing_secret_gets_into_an_image():
    """What is built from is an allow-list; what lies beside it, and inside, stays out."""
    lines = [line for line in (PROJECT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    # Who is not there is missed by the first command that needs it, not by the build.
    wheel = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["foltr"]}
    packages = {"foltr", *(link.readlink().name for link in (PROJECT / "foltr").iterdir() if link.is_symlink())}
    assert packages <= allowed
    assert {path for path in allowed if (PROJECT / path).is_dir()} == packages
    assert {"**/*.sqlite*", "**/*.keys", "**/*.json"} <= set(lines)
    shipped = {str(path.relative_to(PROJECT)) for name in packages for path in (PROJECT / name).rglob("*.json")}
    assert shipped <= allowed


@pytest.mark.skipif(shutil.which("git") is None or not (PROJECT / ".git").exists(), reason="no Git checkout")
def test_no_key_can_be_committed_by_accident():
    """Git ignores what the commands of the documents write beside the sources."""
    for path in (
        *("foltr-operator/enrolment.key", "foltr-operator/register.json", "mosquitto/server.key"),
        *("devices/device-1.json", "somewhere/federator.json", "operator-backup.tar", "mail-north.helper.sqlite"),
    ):
        done = subprocess.run(["git", "check-ignore", "--quiet", path], cwd=PROJECT, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, path


def test_an_image_of_others_is_named_in_one_place():
    """In docker/.env, or in the Dockerfile; from there the stand-ins for machines without a registry take its tag."""
    named = {name: image for file in PINS["FILES"] for name, image in PINS["images_of"](file.read_text()).items()}
    for file in DOCKER.glob("compose*.yaml"):
        for service in yaml.safe_load(file.read_text())["services"].values():
            variable = re.match(r"\$\{(\w+):\?", service["image"])
            assert "build" in service or variable[1] in named, file
    script = (DOCKER / "testing/machine.sh").read_text()
    (reading,) = re.findall(r"^mapfile -t bases < <\((.+?)\)$", script, re.MULTILINE | re.DOTALL)
    done = completed(["bash", "-c", f"here={DOCKER}/testing; {reading}"], check=True)
    assert done.stdout.split() == [named[name] for name in ("PYTHON", "FOLTR_MOSQUITTO_IMAGE", "FOLTR_POSTGRES_IMAGE")]


def test_images_get_the_versions_that_are_tested():
    """Each pin of an image is the version installed here; a device's has no database and no compiler."""
    unwanted = {"sqlalchemy", "alembic", "aiosqlite", "numba", "llvmlite", "scipy", "scikit-learn", "iotcore"}
    assert not unwanted & pins("edge-client.txt").keys()
    assert {"sqlalchemy", "asyncpg"} <= pins("federator.txt").keys()
    roles = ("federator", "dashboard", "helper", "edge-client", "edge-client-simulation", "build")
    for file in (f"{role}.txt" for role in roles):
        for name, versions in pins(file).items():
            try:
                installed = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue  # for another platform
            assert installed in versions, name


def test_the_federator_entry_point_upgrades_and_runs(mosquitto_server, tmp_path):
    """The script of the image, with ``foltr`` on the path: tables, then the federator, with its arguments."""
    variables = environment(
        PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        FOLTR_DB_URL=f"sqlite:///{tmp_path}/f.sqlite",
        FOLTR_BROKER_URL=mosquitto_server.url,
    )
    arguments = ("--allow-unsigned", "--min-time", "0", "--max-time", "1", "--rounds", "1", "--features", "4")
    with prepared_foltr(tmp_path / "bin/foltr"):
        done = completed(["/bin/sh", DOCKER / "federator-entrypoint.sh", *arguments], env=variables)
    assert done.returncode == 0, done.stderr
    listed = foltr_process("rounds", "list", "--db", f"sqlite:///{tmp_path}/f.sqlite")
    assert "no_updates" in listed.stdout
