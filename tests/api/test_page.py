"""The page, in a real Chromium: what it says in each state, no console error, no request to anybody else."""

import dataclasses
import os
import shutil
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.async_api import async_playwright
from support.api_server import FEDERATION, asked
from support.databases import migrated_sqlite, open_migrated
from support.erasure_database import DONE, PAUSE_REASON, PAUSED, made_erasures
from support.history_database import made_history
from support.tally_database import made_tallies
from support.waiting import PATIENCE_S

from foltr.api.access import COOKIE
from foltr.api.tokens import Role
from foltr.core.protocol.evaluations import Evaluation
from foltr.storage.arrivals import commit_batch
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.records import Batch, MembershipChange, NewEvent, NewModel, NewUpdate, RoundOpening
from foltr.storage.rounds import abandon_round, begin_aggregation, complete_round, open_round

CHROMIUM = shutil.which("chromium")
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1200, "height": 900}
OTHER_SCREENS = ((DESK, True), (PHONE, False), (PHONE, True))
# A folder to look at what the tests have seen.
SCREENSHOTS = os.environ.get("FOLTR_TEST_SCREENSHOTS")

_IS_LATER = "before => document.getElementById('asof').dateTime > before"

browsing = [pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]


async def many_rounds(db_url, n_rounds=40):
    """As many rounds of five devices, now and then one without a model, the newest open since a minute."""
    now = datetime.now(UTC).replace(microsecond=0)
    began = now - timedelta(seconds=61 * n_rounds)
    names = [f"device-{i}" for i in range(5)]
    async with await open_migrated(db_url) as db:
        await create_federation(db, FEDERATION, 1, "linear", bytes(4), began)
        epoch = await claim_federation(db, FEDERATION, 0.0)
        opening = RoundOpening(1, 0, 2, 5, 0.0, 600.0, began, began + timedelta(seconds=600))
        await open_round(db, FEDERATION, epoch, opening)
        joined = [MembershipChange(name, "joined", began) for name in names]
        await commit_batch(db, FEDERATION, epoch, Batch(membership=joined))
        version, marks = 0, dict.fromkeys(names, 0)
        for number in range(1, n_rounds + 1):
            at = began + timedelta(seconds=61 * number)
            some = names[:1] if number % 10 == 0 else names[: number % 4 + 2]
            does = Evaluation(clicked=0.75, reward=0.7 - 0.2 / number, base_reward=0.5)
            sent = [
                NewUpdate(
                    *(number, name, f"{number}", version, marks[name], marks[name] + 5, 5, "dense_f32", bytes(4), at),
                    evaluation=does,
                )
                for name in some
            ]
            late = [NewEvent(at, "update_rejected", "too late", "late", "device-4", number)] * (number % 3)
            await commit_batch(db, FEDERATION, epoch, Batch(updates=sent, events=late))
            following = dataclasses.replace(
                opening, number=number + 1, base_version=version, opened_at=at, closes_at=at + timedelta(seconds=600)
            )
            if number % 10 == 0:
                await abandon_round(db, FEDERATION, epoch, number, "too_few_clients", at, following)
                continue
            marks |= {name: marks[name] + 5 for name in some}
            await begin_aggregation(db, FEDERATION, epoch, number)
            version += 1
            following = dataclasses.replace(following, base_version=version)
            await complete_round(db, FEDERATION, epoch, number, NewModel(version, bytes(4)), at, following)


@asynccontextmanager
async def looking(server, token=None, viewport=None, dark=False, forgiven=None):
    """A page of a browser that has the cookie; it fails at the end where anything was an error, or went elsewhere.

    Args:
        forgiven: errors with these words are none.
    """
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = await browser.new_context(
            viewport=viewport or DESK, color_scheme="dark" if dark else "light", reduced_motion="reduce"
        )
        context.set_default_timeout(PATIENCE_S * 1000)
        if token is not None:
            await context.add_cookies([{"name": COOKIE, "value": token, "url": server.url, "sameSite": "Strict"}])
        page = await context.new_page()
        errors, foreign = [], []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(server.url) else foreign.append(request.url))
        try:
            yield page
        finally:
            await browser.close()
        errors = [text for text in errors if forgiven is None or forgiven not in text]
        assert (errors, foreign) == ([], [])


async def seen(page, name):
    """Keep a picture, where somebody wants to look at it; nothing is wider than the screen, and axe finds no fault."""
    if SCREENSHOTS:
        await page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)
    assert await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    # Evaluated, for the page's own policy lets no other script in.
    await page.evaluate(AXE)
    faults = (await page.evaluate("axe.run()"))["violations"]
    assert [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in faults] == []


@pytest.fixture(autouse=True)
def _streams_are_quick(monkeypatch):
    """What a page waits for comes in a moment."""
    monkeypatch.setattr("foltr.api.stream._EVERY_S", 0.5)


@pytest.fixture
async def busy(tmp_path):
    url = migrated_sqlite(tmp_path / "foltr.sqlite")
    await many_rounds(url)
    async with asked(url, tmp_path) as running:
        yield running


class TestInChromium:
    pytestmark = browsing

    @pytest.mark.parametrize(
        ("viewport", "dark"),
        [(DESK, False), *(pytest.param(*screen, marks=pytest.mark.nightly) for screen in OTHER_SCREENS)],
    )
    async def test_the_page_says_what_the_round_waits_for(self, busy, viewport, dark):
        """And since when; rounds as curves and as a table, on any screen, in light and dark."""
        token = busy.token(Role.VIEWER)
        status = (await busy.get("/api/v1/status", token)).json()
        async with looking(busy, token, viewport, dark) as page:
            await page.goto(busy.url)
            await page.wait_for_selector("#chart-updates canvas")
            # The sentence ends with how long ago that was.
            told, expected = await page.text_content("#waits"), status["waits_for"][0]
            assert told.partition(", opened")[0] == expected.partition(", opened")[0]
            assert await page.text_content("#round") == "41, collecting"
            assert await page.text_content("#online") == "5 of 5"
            assert await page.text_content("#refusals td") == "late"
            assert await page.is_visible("#chart-presence canvas")
            assert await page.is_visible("#chart-rewards canvas")
            assert await page.text_content("#reward") == "0.70, 0.50"
            assert (await page.text_content("#rounds tbody tr:nth-child(2)")).startswith("40abandoned: too_few_clients")
            first = await page.get_attribute("#asof", "datetime")
            await page.wait_for_function("first => document.getElementById('asof').dateTime !== first", arg=first)
            await seen(page, f"{'phone' if viewport is PHONE else 'desk'}-{'dark' if dark else 'light'}")

    async def test_what_ends_is_shown_and_not_asked_for(self, busy):
        """Rounds come with the events: 200 pages that asked for each would keep a processor busy."""
        db, at, asked_for = busy.served.db, datetime.now(UTC), []
        async with looking(busy, busy.token(Role.VIEWER)) as page:
            page.on("request", lambda request: asked_for.append(request.url))
            await page.goto(busy.url)
            await page.wait_for_selector("#chart-updates canvas")
            epoch = await claim_federation(db, FEDERATION, 0.0)
            for number in (41, 42):
                opening = RoundOpening(number + 1, 36, 2, 5, 0.0, 600.0, at, at + timedelta(seconds=600))
                await abandon_round(db, FEDERATION, epoch, number, "too_few_clients", at, opening)
                is_first = "text => document.querySelector('#rounds tbody tr').textContent.startsWith(text)"
                await page.wait_for_function(is_first, arg=f"{number + 1}collecting")
            assert (await page.text_content("#rounds tbody tr:nth-child(3)")).startswith("41abandoned")
        assert len([url for url in asked_for if "/rounds" in url]) == 1

    @pytest.mark.nightly
    async def test_tallies_of_secure_votes_are_shown_with_their_noise(self, tmp_path):
        """As `foltr rounds list` has them; a round without any has a dash, and not 0/0."""
        url = migrated_sqlite(tmp_path / "foltr.sqlite")
        await made_tallies(url)
        async with asked(url, tmp_path) as server, looking(server, server.token(Role.VIEWER), PHONE) as page:
            await page.goto(server.url)
            await page.wait_for_selector("#chart-updates canvas")
            open_round, before = [f"#rounds tbody tr:nth-child({i}) td:nth-child(9)" for i in (1, 2)]
            assert (await page.text_content(before), len(await page.text_content(open_round))) == ("33/-2 ± 3", 1)
            await seen(page, "tallies")

    @pytest.mark.nightly
    async def test_an_empty_federation_says_so(self, tmp_path):
        """No curve of nothing."""
        url = migrated_sqlite(tmp_path / "foltr.sqlite")
        async with await open_migrated(url) as db:
            await create_federation(db, FEDERATION, 1, "linear", bytes(4), datetime.now(UTC))
        async with asked(url, tmp_path) as server, looking(server, server.token(Role.VIEWER)) as page:
            await page.goto(server.url)
            await page.wait_for_selector("#no-rounds:not([hidden])")
            await page.wait_for_selector("#no-erasures:not([hidden])")
            assert await page.is_hidden("#charts")
            assert (len(await page.text_content("#reward")), await page.is_hidden("#rewards")) == (1, True)
            await seen(page, "empty")

    async def test_it_says_that_the_database_is_away_and_goes_on_when_it_is_back(self, busy, tmp_path):
        """What it showed stays, with its time; nobody need load it anew."""
        path, away = tmp_path / "foltr.sqlite", tmp_path / "away.sqlite"
        async with looking(busy, busy.token(Role.VIEWER)) as page:
            await page.goto(busy.url)
            await page.wait_for_selector("#chart-updates canvas")
            path.rename(away)
            await page.wait_for_selector("#away:not([hidden])")
            assert "foltr doctor" in await page.text_content("#away")
            assert await page.text_content("#round") == "41, collecting"
            await seen(page, "away")
            away.rename(path)
            await page.wait_for_selector("#away", state="hidden")

    async def test_erasures_are_shown_with_their_progress_and_receipts(self, tmp_path):
        """One waits, a job is paused in the middle with its reason, and whoever is done has a receipt to take away."""
        url = migrated_sqlite(tmp_path / "foltr.sqlite")
        await made_erasures(url)
        async with asked(url, tmp_path) as server, looking(server, server.token(Role.VIEWER)) as page:
            await page.goto(server.url)
            await page.wait_for_selector("#erasures tbody tr")
            counted = [await page.text_content(f"#e-{state}") for state in ("waiting", "unlearning", "done")]
            assert counted == ["1", "1", "2"]
            assert PAUSE_REASON in await page.text_content("#job-words")
            assert await page.get_attribute("#job-steps", "max") is not None
            links = await page.eval_on_selector_all("#erasures a", "all => all.map(one => one.getAttribute('href'))")
            assert len(links) == 2
            assert (await server.get(links[0], server.token(Role.VIEWER))).text.count(".") == 2
            await seen(page, "erasures")
        for name in (DONE, PAUSED):
            async with (
                asked(url, tmp_path) as server,
                looking(server, server.token(Role.PARTICIPANT, name), PHONE) as page,
            ):
                await page.goto(server.url)
                assert "was forgotten on" in await page.text_content(".waits")
                assert await page.is_visible("text=My receipt") is (name == DONE)
                await seen(page, f"participant-{name}")

    async def test_a_tab_that_is_open_for_a_day_goes_on_and_ends_with_its_token(self, busy, monkeypatch):
        """Its streams end and begin again, it does not grow, and once its token is void it asks for another one."""
        monkeypatch.setattr("foltr.api.stream._LONGEST_S", 1.0)
        token = busy.token(Role.VIEWER)
        async with looking(busy, token, forgiven="the server responded with a status of 403") as page:
            await page.clock.install()
            await page.goto(busy.url)
            await page.wait_for_selector("#chart-presence canvas")
            n_elements = []
            for _ in range(3):
                before = await page.get_attribute("#asof", "datetime")
                await page.clock.fast_forward("08:00:00")
                await page.wait_for_function(_IS_LATER, arg=before)
                # On a busy machine the next stream may be lost, too, and begun again, before this looks.
                await page.wait_for_function("() => document.querySelector('#link').textContent === ''")
                n_elements.append(await page.evaluate("document.querySelectorAll('*').length"))
            assert n_elements[-1] <= n_elements[0] + 20
            busy.served.tokens.revoke(token.split(".")[0])
            while not await page.is_visible("#token"):
                await page.clock.fast_forward(10_000)
                await page.wait_for_timeout(50)
            assert "revoked" in await page.text_content("main")

    async def test_a_token_goes_in_by_the_form_and_out_again(self, busy):
        """By keyboard alone; no script sees the cookie."""
        async with looking(busy) as page:
            await page.goto(busy.url)
            await seen(page, "login")
            await page.keyboard.type(busy.token(Role.VIEWER))
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#waits")
            assert await page.evaluate("document.cookie") == ""
            (cookie,) = await page.context.cookies()
            assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
            await page.keyboard.press("Tab")
            assert await page.evaluate("document.activeElement.className") == "skip"
            await page.keyboard.press("Enter")
            assert await page.evaluate("document.activeElement.id") == "main"
            await page.click("text=Leave")
            await page.wait_for_selector("#token")

    async def test_a_participant_sees_its_own_part(self, busy):
        """Its contributions, and how to be forgotten: here, too, where the server has access to the broker."""
        busy.served.credentials = object()
        async with looking(busy, busy.token(Role.PARTICIPANT, "device-3")) as page:
            await page.goto(busy.url)
            assert await page.text_content("h1") == f"My part in {FEDERATION}"
            assert "device-3 takes part" in await page.text_content(".waits")
            text = await page.text_content("main")
            assert ("device-2" in text, "forget_me()" in text) == (False, True)
            await page.focus("#wish")
            await page.keyboard.press("Tab")
            assert await page.evaluate("document.activeElement.textContent") == "Forget me for ever"
            await seen(page, "participant")


async def test_text_of_a_device_is_never_markup(tmp_path):
    """Jinja2 escapes what the database has; a reason is an operator's, or a device's."""
    url = migrated_sqlite(tmp_path / "foltr.sqlite")
    await made_history(url, FEDERATION)
    async with await open_migrated(url) as db:
        at = datetime.now(UTC)
        epoch = await claim_federation(db, FEDERATION, 0.0)
        sent = NewUpdate(2, "a", "<b>x</b>", 1, 5, 10, 5, "dense_f32", bytes(4), at)
        await commit_batch(db, FEDERATION, epoch, Batch(updates=[sent]))
    async with asked(url, tmp_path) as server:
        cookie = {"Cookie": f"{COOKIE}={server.token(Role.PARTICIPANT, 'a')}"}
        mine = await server.get("/", headers=cookie)
        assert (mine.status_code, "<b>x" in mine.text) == (200, False)
        await _login_checks(server)


async def _login_checks(server):
    wrong = await server.post("/login", content="token=%3Cscript%3E")
    assert (wrong.status_code, "<script>" in wrong.text, "unknown" in wrong.text) == (401, False, True)
    elsewhere = {"Origin": "http://elsewhere.example"}
    for path in ("/login", "/logout"):
        assert (await server.post(path, content="token=x", headers=elsewhere)).status_code == 403
    shown = await server.get("/", headers={"Cookie": f"{COOKIE}=nobody.nothing"})
    assert (shown.status_code, "does not know" in shown.text) == (401, True)


def test_nothing_of_the_page_is_from_elsewhere_or_inline():
    """As the policy in its headers demands: no address, no style and no script in its markup."""
    folder = Path(__file__).parents[2] / "foltr/api/pages"
    for path in [*folder.rglob("*.html"), folder / "static/page.js", folder / "static/page.css"]:
        text = path.read_text()
        assert not [word for word in ("http://", "https://", " style=", "onclick", "innerHTML") if word in text], path
    assert "Leon Sorokin" in (folder / "static/uplot/LICENSE").read_text()
