"""The alert rules: each is raised for what it is for, and its metrics are those that are shown."""

import re
import shutil
import subprocess

import pytest
import yaml
from cli.commands import PROJECT
from support.api_server import FEDERATION
from support.completed_process import completed
from support.databases import open_migrated

from foltr.api.metrics import federation_metrics
from foltr.core.protocol.verdicts import Level, Reason
from foltr.federator.measures import FederatorMeasures, WorkerMeasures
from foltr.helper.measures import HelperMeasures
from foltr.operations.overview import read_overview
from foltr.operations.verdict import judge
from foltr.storage.pages import RoundTotals, add_rounds

RULES = PROJECT / "monitoring/alerts.yml"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
@pytest.mark.parametrize("words", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]])
def test_promtool_finds_them_right(words):
    """Prometheus' own checker, and its own tests of rules."""
    done = completed(["promtool", *words], cwd=RULES.parent)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("amtool") is None, reason="no amtool")
def test_amtool_sends_each_severity_to_its_receiver():
    """Alertmanager's own checker takes the configuration, and names who hears of an alert."""
    file = RULES.with_name("alertmanager.yml")
    severities = {rule["labels"]["severity"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
    subprocess.run(["amtool", "check-config", file], capture_output=True, check=True)
    for severity in severities:
        asked = ["amtool", "config", "routes", "test", f"--config.file={file}", f"severity={severity}"]
        done = completed(asked, check=True)
        assert done.stdout.split() == [severity]


async def test_every_metric_of_a_rule_is_one_that_is_shown(history_url):
    """A metric that is renamed takes its alerts with it."""
    async with await open_migrated(history_url) as db:
        overview, totals = await read_overview(db, FEDERATION), await add_rounds(db, FEDERATION, RoundTotals())
    families = federation_metrics(FEDERATION, overview, judge(overview), totals)
    shown = {sample.name for family in families for sample in family.samples}
    processes = (FederatorMeasures("mail"), WorkerMeasures("mail"), HelperMeasures("mail", "north"))
    shown |= {measure.name for of in processes for measure in of.all}
    named = {name for rule in rules() for name in re.findall(r"foltr_\w+", rule["expr"])}
    assert named
    assert named <= shown


def test_each_says_what_to_type_and_where_to_read_on():
    """Where to read on is a heading of the runbook; that of a finding has its reason's name."""
    headings = re.findall(r"^##+ (.+)$", (PROJECT / "docs/runbook.md").read_text(), re.MULTILINE)
    places = {f"docs/runbook.md#{heading.lower().replace(' ', '-')}" for heading in headings}
    for rule in rules():
        says = rule["annotations"]
        assert says["next_step"], rule["alert"]
        place = says["runbook"].replace("{{ $labels.reason }}", str(Reason.DISK_FULL))
        assert place in places, rule["alert"]


def test_the_rules_know_the_levels_and_reasons_of_a_verdict():
    """Each finding raises one alert, but those that end by themselves."""
    of_findings = "".join(rule["expr"] for rule in rules() if "foltr_findings" in rule["expr"])
    assert re.findall(r'level="(\w+)"', of_findings) == [Level.DOWN, Level.DEGRADED]
    (passed_over,) = re.findall(r'reason!~"([^"]+)"', of_findings)
    assert set(passed_over.split("|")) == {Reason.DEVICE_REVOKED, Reason.LEADER_CHANGED}


def rules() -> list[dict]:
    """Return the rules."""
    return yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
