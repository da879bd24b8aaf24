"""A federation as an operator watches it: Prometheus, the board, logs; none of them has a forgotten client's name."""

import json
import math
import re

from cli.commands import PROJECT, foltr
from integration.deployment import logged_process
from integration.prometheus import Prometheus, prometheus
from integration.scraped import complaints, samples, scrape, shown_at
from integration.whole import Whole, click, joined
from support.databases import migrated_sqlite
from support.secure_cohorts import FEDERATION
from support.waiting import PATIENCE_S, until

from foltr.edge_client.client import EdgeClient

BOARD = PROJECT / "monitoring/grafana/foltr.json"
FORGOTTEN = "device-0"
PORT = {"FOLTR_METRICS_PORT": "0"}
AT_ONCE = {"FOLTR_UNLEARN_EVERY_S": "0.2"}
STEPS = {
    "foltr.federator.job.UnlearningPolicy": {"swap_every_s": 0.0, "step_s": 2.0},
    "foltr.federator.job.MOST_MISSES": 50,  # no step is passed over because the machine was slow
}
RESETS = {"FOLTR_UNLEARNING_MAY_RESET": "true"}


def board_queries() -> list[tuple[str, str, bool]]:
    """Title, expression, and whether it may be empty, of every query of the board."""
    return [
        (panel["title"], target["expr"], panel.get("description", "").startswith("Empty"))
        for panel in json.loads(BOARD.read_text())["panels"]
        for target in panel.get("targets", ())
    ]


async def in_rounds(whole: Whole, devices: list[EdgeClient], n_rounds: int) -> None:
    """Have every device click until so many rounds more have a model."""
    url = await shown_at(whole.folder / "federator.out")

    async def n_completed() -> float:
        return samples(await scrape(url))["foltr_federator_rounds_total", "completed"]

    wanted = await n_completed() + n_rounds

    async def enough() -> bool:
        for device in devices:
            if not device.n_waiting:
                click(device, 1)
        return await n_completed() >= wanted

    await until(enough, f"{n_rounds} more rounds have no model")


def start_api(whole: Whole, database_url: str) -> None:
    token = foltr("api", "token", "new", "viewer", "--federation", FEDERATION, cwd=whole.folder)
    (whole.folder / "token").write_text(token.stdout.strip())
    words = ["api", "run", "--port", "0", "--db", database_url, "--federation", FEDERATION]
    whole.processes["api"] = logged_process(words, whole.folder / "api.out", whole.folder)


async def api_url(whole: Whole) -> str:
    said = whole.folder / "api.out"
    await until(lambda: "api_started" in said.read_text(), "the API does not start")
    return re.findall(r"http://[\d.:]+", said.read_text())[0]


async def unanswered_of_board(server: Prometheus) -> list[tuple[str, str]]:
    """The queries of the board without a number, unless the panel says that it may be empty."""
    empty, not_a_number = [], []
    for title, expression, may_be_empty in board_queries():
        found = await server.query(expression.replace("$federation", FEDERATION).replace("$__rate_interval", "1m"))
        if not found and not may_be_empty:
            empty.append((title, expression))
        if found and all(math.isnan(value) for value in found):
            not_a_number.append((title, expression))
    return empty + not_a_number


async def test_the_forgotten_name_is_found_nowhere(whole, tmp_path):
    """Rounds of a federation with helpers, all of it scraped; a device is forgotten; the others go on."""
    database_url = migrated_sqlite(tmp_path / "foltr.sqlite")
    for name in ("north", "south"):
        whole.start_helper(name, **PORT)
    options = ("--rounds", "10000", "--min-clients", "4")
    variables = {**PORT, **AT_ONCE, **RESETS}
    whole.start_federator(database_url, "", *options, defaults=STEPS, **variables)
    start_api(whole, database_url)
    said = [tmp_path / f"{name}.out" for name in ("federator", "north", "south", "api")]
    federator, north, south = [await shown_at(log) for log in said[:3]]
    jobs = {"foltr-federator": [federator], "foltr-helper": [north, south], "foltr": [await api_url(whole)]}
    async with joined(whole) as devices:
        await in_rounds(whole, devices, 1)
        async with prometheus(tmp_path, jobs, tmp_path / "token") as server:
            await in_rounds(whole, devices, 3)
            assert FORGOTTEN in json.dumps([device.client_id for device in devices])
            result = await devices[0].forget_me(timeout_s=PATIENCE_S)
            assert result.state == "forgotten"
            unanswered: list[tuple[str, str]] = []

            async def is_answered() -> bool:  # rates take two scrapes, with rounds between them
                await in_rounds(whole, devices[1:], 2)
                unanswered[:] = await unanswered_of_board(server)
                return not unanswered

            try:
                await until(is_answered)
            finally:
                assert unanswered == []
            rules = (await server.ask("rules"))["groups"][0]["rules"]
            assert {rule["name"]: rule["health"] for rule in rules if rule["health"] != "ok"} == {}
            assert {rule["name"] for rule in rules if rule["state"] == "firing"} == set()
            scraped = [await scrape(url) for url in (federator, north, south)]
    shown = samples(scraped[0])
    assert shown["foltr_federator_erasures_total",] == 1
    assert samples(scraped[1])["foltr_helper_sums_opened_total",] >= 6
    assert [await complaints(text) for text in scraped] == ["", "", ""]
    whole.close()
    stored = b"".join(path.read_bytes() for path in server.data.rglob("*") if path.is_file())
    check_nowhere(FORGOTTEN, scraped, stored, [path.read_text() for path in said])


def check_nowhere(name: str, scraped: list[str], stored: bytes, logs: list[str]) -> None:
    """The name is in nothing that outlives the client; and what was looked through is not empty."""
    assert not any(name in text for text in scraped)
    assert b"foltr_federator_rounds_total" in stored
    assert name.encode() not in stored
    assert all(logs)
    assert "round_completed" in logs[0]
    assert "client_joined" in logs[0]
    assert "client_erased" in logs[0]
    assert [line for text in logs for line in text.splitlines() if name in line] == []
