"""Drills: the four places that say how a federation is, and the table of when each knew what was broken."""

import asyncio
import html
import json
import os
import re
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import yaml
from cli.commands import PROJECT, foltr_process
from integration.scraped import samples
from support.api_server import Asked, asked
from support.waiting import until

from foltr.api.tokens import Role
from foltr.core.protocol.verdicts import Level, Reason

Found = tuple[Level, list[tuple[str, str]]]
"""The level of a verdict, and the reason and culprit of each finding."""

PLACES = ("status", "api", "page", "metrics")
_PRINTED = os.environ.get("FOLTR_TEST_DRILLS")
_BAND = re.compile(r'data-level="(\w+)"')
_FINDING = re.compile(r'<article class="finding">.*?</article>', re.DOTALL)
_NAMED = re.compile(r'data-is="(?:device|culprit)"[^>]*>([^<]+)<')
_REASON = re.compile(r'data-is="reason">(\w+)<')


class Watch:
    """What `foltr status`, the HTTP API, its page and its metrics say of a federation."""

    def __init__(self, database_url: str, federation: str, api: Asked, folder: Path) -> None:
        self._status = ("status", "--json", "--db", database_url, "--federation", federation)
        self._api, self._folder = api, folder
        # Each has a rate of its own.
        self._tokens = {place: api.token(Role.VIEWER, lasts_s=3600.0) for place in PLACES}

    async def of_status(self) -> Found:
        """What ``foltr status`` says, and that its exit code says the same."""
        done = await asyncio.to_thread(foltr_process, *self._status, cwd=self._folder)
        verdict = json.loads(done.stdout)["verdict"]
        assert done.returncode == {"ok": 0, "degraded": 1, "down": 3}[verdict["level"]]
        return _of_json(verdict)

    async def of_api(self) -> Found:
        """What ``/api/v1/status`` says."""
        return _of_json((await self._api.get("/api/v1/status", self._tokens["api"])).json()["verdict"])

    async def of_page(self) -> Found:
        """What the band above the page says."""
        page = (await self._api.get("/", self._tokens["page"])).text
        (level,) = _BAND.findall(page)
        findings = [(_REASON.search(each), _NAMED.search(each)) for each in _FINDING.findall(page)]
        named = [(reason[1], html.unescape(who[1]) if who else "") for reason, who in findings if reason]
        return Level(level), named

    async def of_metrics(self) -> Found:
        """What ``/metrics`` says, which has no names."""
        shown = samples((await self._api.get("/metrics", self._tokens["metrics"])).text)
        (level,) = [Level(key[1]) for key, value in shown.items() if key[0] == "foltr_verdict" and value]
        return level, [(key[2], "") for key, value in shown.items() if key[0] == "foltr_findings" and value]

    async def finds(
        self,
        drill: str,
        reason: Reason,
        culprit: str = "",
        since: float | None = None,
        named_by: Collection[str] = ("status", "api", "page"),
    ) -> None:
        """Wait until all four have the finding, and ``named_by`` its culprit; note how long each took."""
        began = time.monotonic() if since is None else since  # clock: measures

        async def took(place: str) -> float:
            ask = getattr(self, f"of_{place}")

            async def has_it() -> bool:
                level, found = await ask()
                named = [who for what, who in found if what == reason]
                who_is_it = culprit if place in named_by else ""
                return who_is_it in named and level in (reason.level, Level.DOWN)

            await until(has_it, f"{place} does not say {reason} of {culprit}: {await ask()}")
            return time.monotonic() - began  # clock: measures

        _note(drill, reason, culprit, await asyncio.gather(*(took(place) for place in PLACES)))

    async def is_well(self, but: frozenset[str] = frozenset({"leader_changed"})) -> None:
        """Wait until nothing is found any more."""

        async def well() -> bool:
            return {what for what, _ in (await self.of_api())[1]} <= but

        await until(well, f"it is not well: {await self.of_api()}")


@asynccontextmanager
async def watched(database_url: str, federation: str, folder: Path) -> AsyncIterator[Watch]:
    """Watch a federation; its API is served for the time of the block."""
    async with asked(database_url, folder, federation) as api:
        yield Watch(database_url, federation, api, folder)


def alert_of(reason: Reason) -> str:
    """Return the alert that a finding raises, and after how long; a dash if none."""
    rules = yaml.safe_load((PROJECT / "monitoring/alerts.yml").read_text())["groups"][0]["rules"]
    for rule in rules:
        passed_over = re.search(r'reason!~"([^"]*)"', rule["expr"])
        is_of_level = f'foltr_findings{{level="{reason.level}"' in rule["expr"]
        if is_of_level and not (passed_over and re.fullmatch(passed_over[1], reason)):
            return f"{rule['alert']} +{rule['for']}"
    return "-"


def _of_json(verdict: dict) -> Found:
    return Level(verdict["level"]), [(each["reason"], each["culprit"]) for each in verdict["findings"]]


def _note(drill: str, reason: Reason, culprit: str, seconds: Sequence[float]) -> None:
    """Add a row to the table, if somebody wants it."""
    if _PRINTED:
        cells = (drill, reason.level, reason, culprit, *(f"{each:.1f}" for each in seconds), alert_of(reason))
        with Path(_PRINTED).open("a") as table:
            table.write(f"| {' | '.join(cells)} |\n")
