"""The overview and the band above all pages, in a real Chromium: what they say in each state of a federation."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support import page_states
from support.api_server import FEDERATION, asked
from support.databases import migrated_sqlite, open_migrated
from support.page_browser import PHONE, SCREENSHOTS, browsing, looking, seen, seen_everywhere
from support.tally_database import made_tallies

from foltr.api.access import COOKIE
from foltr.api.tokens import Role
from foltr.core.protocol.verdicts import Reason
from foltr.storage.arrivals import commit_batch
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.records import Batch, NewEvent, NewUpdate, RoundOpening
from foltr.storage.rounds import abandon_round

_IS_LATER = "before => document.getElementById('asof').dateTime > before"
_LEVEL = "level => document.getElementById('band').dataset.level === level"


@pytest.fixture(autouse=True)
def _streams_are_quick(monkeypatch):
    """What a page waits for comes in a moment, and a leader's lease does not run out while a test looks."""
    monkeypatch.setattr("foltr.api.stream._EVERY_S", 0.5)
    monkeypatch.setattr("foltr.storage.leases.LEASE_S", 3600.0)


@pytest.fixture
async def busy(sqlite_url, tmp_path):
    """Forty rounds of five devices, and a leader."""
    await page_states.many_rounds(sqlite_url)
    async with asked(sqlite_url, tmp_path) as running:
        await page_states.led(running.served.db)
        yield running


async def charted(page, server, path=""):
    """Go to the overview, and wait until its charts are drawn."""
    await page.goto(server.url + path)
    await page.wait_for_selector("#chart-seconds canvas")


class TestInChromium:
    pytestmark = browsing

    async def test_a_federation_that_is_well_says_what_it_waits_for(self, busy):
        """Four figures with what they count behind them; rounds as curves and as a table; it follows the stream."""
        token = busy.token(Role.VIEWER)
        async with looking(busy, token) as page:
            status = (await busy.get("/api/v1/status", token)).json()
            await charted(page, busy)
            await page.wait_for_function(_LEVEL, arg="ok")
            assert "All is well." in await page.text_content("#band")
            # The sentence ends with how long ago that was.
            told, expected = await page.text_content("#waits li"), status["waits_for"][0]
            assert told.partition(", opened")[0] == expected.partition(", opened")[0]
            figures = [await page.text_content(f"#{name}") for name in ("online", "updates", "reward")]
            assert figures == ["5 of 5", "1 of 2", "0.71 0.50"]
            leads_to = {"online": "/devices?state=online", "updates": "/rounds/41", "reward": "/rounds/39"}
            for card, path in leads_to.items():
                assert await page.get_attribute(f"a:has(#{card})", "href") == path
            assert (await page.text_content("#rounds tr:nth-child(2)")).startswith("40abandoned: too few clients")
            assert await page.is_hidden("#erased")
            first = await page.get_attribute("#asof", "datetime")
            await page.wait_for_function(_IS_LATER, arg=first)
            await seen_everywhere(page, "overview-ok")
            await page.emulate_media(media="print")
            await seen(page, "overview-print")

    async def test_a_flood_names_its_sender_and_flattens_nothing(self, busy):
        """The most refused first, with a link to it and what to type; axes of whole numbers."""
        await page_states.flooded(busy.served.db)
        async with looking(busy, busy.token(Role.VIEWER)) as page:
            await charted(page, busy)
            assert await page.get_attribute("#band", "data-level") == "degraded"
            assert await page.title() == f"DEGRADED: {FEDERATION}, foltr"
            gravest = await page.text_content("#gravest")
            assert "mallory: 20,000 of its messages were refused" in gravest
            assert 'foltr device show mallory --db "$FOLTR_DB_URL"' in gravest
            assert "messages_refused" in gravest
            assert await page.get_attribute("#gravest a", "href") == "/devices/mallory"
            assert "device-3" in await page.text_content("#further")
            assert await page.locator("#chart-refused canvas").count() == 1
            await seen_everywhere(page, "overview-flood")
            assert await page.locator(".refusals a").all_text_contents() == ["20,000", "280"]
            await page_states.flooded(busy.served.db, 5_000)
            await page.wait_for_function("() => document.querySelector('.refusals a').textContent === '25,000'")
            await page.click("#gravest a")
            assert await page.text_content("h1") == "mallory"
            assert "never joined" in await page.text_content(".lead")
            await seen(page, "device-stranger")

    async def test_an_erasure_says_on_the_chart_that_counts_are_lower(self, busy):
        """When it happens, while the page is open."""
        async with looking(busy, busy.token(Role.VIEWER)) as page:
            await charted(page, busy)
            assert await page.is_hidden("#erased")
            await page_states.erased(busy.served.db)
            await page.wait_for_selector("#erased:not([hidden])")
            assert (await page.text_content("#erased")).startswith("Counts of 28 rounds are lower than they were")
            assert "erased since" in await page.text_content("#chart-updates")
            await page.wait_for_function("() => document.getElementById('rounds').textContent.includes('2 of 3')")
            # What was refused of it is gone, too.
            await page.wait_for_selector("#no-refusals:not([hidden])")
            assert await page.text_content("#n-erasures") == "1"
            await seen_everywhere(page, "overview-erased")

    async def test_down_says_so_while_the_page_is_open(self, busy):
        """In the band, for screen readers, and in the title; and that it is well again."""
        db = busy.served.db
        async with looking(busy, busy.token(Role.VIEWER)) as page:
            await charted(page, busy)
            await page.wait_for_function(_LEVEL, arg="ok")
            await page_states.leaderless(db)
            await page.wait_for_function(_LEVEL, arg="down")
            assert "No federator leads the federation." in await page.text_content("#gravest .sentence")
            assert page_states.LEADER in await page.text_content("#gravest")
            assert (await page.text_content("#gravest code")).startswith("foltr federator run --db")
            assert (await page.text_content("#told")).startswith("down: ")
            assert (await page.title()).startswith("DOWN: ")
            await seen_everywhere(page, "overview-down")
            await page_states.led(db)
            await page.wait_for_function(_LEVEL, arg="ok")
            assert await page.locator("#gravest article").count() == 0

    async def test_what_ends_is_shown_and_not_asked_for(self, busy):
        """Rounds come with the events: 200 pages that asked for each would keep a processor busy."""
        db, at, asked_for = busy.served.db, datetime.now(UTC), []
        async with looking(busy, busy.token(Role.VIEWER)) as page:
            page.on("request", lambda request: asked_for.append(request.url))
            await charted(page, busy)
            epoch = await claim_federation(db, FEDERATION, 0.0)
            for number in (41, 42):
                opening = RoundOpening(number + 1, 36, 2, 5, 0.0, 600.0, at, at + timedelta(seconds=600))
                await abandon_round(db, FEDERATION, epoch, number, "too_few_clients", at, opening)
                is_first = "text => document.querySelector('#rounds tr').textContent.startsWith(text)"
                await page.wait_for_function(is_first, arg=f"{number + 1}collecting")
            assert (await page.text_content("#rounds tr:nth-child(3)")).startswith("41abandoned")
        assert len([url for url in asked_for if "/rounds" in url]) == 1

    async def test_an_empty_federation_says_what_will_appear(self, tmp_path):
        """And how to get there; no curve of nothing."""
        url = migrated_sqlite(tmp_path / "foltr.sqlite")
        async with await open_migrated(url) as db:
            await create_federation(db, FEDERATION, 1, "linear", bytes(4), datetime.now(UTC))
        async with asked(url, tmp_path) as server, looking(server, server.token(Role.VIEWER)) as page:
            for path, name, expected in (
                ("/devices", "devices", "No device has joined"),
                ("/rounds", "rounds", "No round was opened"),
                ("/events", "events", "Nothing has happened"),
                ("/erasures", "erasures", "Nobody was erased"),
                ("/", "overview", "The charts begin with the first round that ends"),
            ):
                await page.goto(server.url + path)
                assert expected in await page.text_content(".empty:not([hidden])")
                await seen(page, f"{name}-empty")
            assert await page.is_hidden("#charts")
            assert (await page.text_content("#gravest code")).startswith("foltr federator run --db")

    async def test_the_database_goes_and_comes_back(self, busy, tmp_path):
        """What an open page showed stays, and says that it is old; a page that had nothing loads itself again."""
        path, away = tmp_path / "foltr.sqlite", tmp_path / "away.sqlite"
        async with looking(busy, busy.token(Role.VIEWER), forgiven="the server responded with a status of 503") as page:
            await charted(page, busy)
            path.rename(away)
            await page.wait_for_function(_LEVEL, arg="down")
            assert await page.text_content("#gravest .sentence") == Reason.DATABASE_GONE.sentence
            assert "move it back" in await page.text_content("#gravest")
            assert await page.text_content("#link") == "(the rest of this page is from then)"
            assert await page.text_content("#updates") == "1 of 2"
            await seen(page, "overview-away")
            answer = await page.goto(f"{busy.url}/devices")
            assert answer.status == 503
            assert await page.get_attribute("#band", "data-level") == "down"
            await seen(page, "devices-away")
            away.rename(path)
            await page.wait_for_selector("h1:has-text('Devices')")

    async def test_a_tab_that_is_open_for_a_day_goes_on_and_ends_with_its_token(self, busy, monkeypatch):
        """Its streams end and begin again, it does not grow, and once its token is void it asks for another one."""
        monkeypatch.setattr("foltr.api.stream._LONGEST_S", 1.0)
        token = busy.token(Role.VIEWER)
        async with looking(busy, token, forgiven="the server responded with a status of 403") as page:
            await page.clock.install()
            await charted(page, busy)
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

    async def test_without_javascript_all_but_the_charts_is_there(self, busy):
        """The band, the figures and the table are the server's."""
        async with looking(busy, busy.token(Role.VIEWER)) as page:
            context = await page.context.browser.new_context(java_script_enabled=False, viewport=PHONE)
            await context.add_cookies(await page.context.cookies())
            plain = await context.new_page()
            await plain.goto(busy.url)
            assert "All is well." in await plain.text_content("#band")
            assert "5 of 5" in await plain.text_content("#online")
            await plain.click("text=Devices online")
            assert await plain.locator("tbody tr").count() == 5

    @pytest.mark.skipif(SCREENSHOTS is None, reason="only for `make screenshots`")
    async def test_pictures_for_the_readme(self, tmp_path):
        """A federation of 32 devices that learns, as wide as a README has it."""
        url = migrated_sqlite(tmp_path / "foltr.sqlite")
        await page_states.many_rounds(url, n_rounds=48, n_devices=32, quorum=26)
        async with asked(url, tmp_path) as server:
            await page_states.led(server.served.db)
            for dark in (False, True):
                async with looking(server, server.token(Role.VIEWER), {"width": 1200, "height": 708}, dark) as page:
                    await charted(page, server)
                    await page.screenshot(path=Path(SCREENSHOTS) / f"page_{'dark' if dark else 'light'}.png")


async def test_tallies_of_secure_votes_are_shown_with_their_noise(sqlite_url, tmp_path):
    """Nobody counts votes one by one: tallies, or null; as `foltr rounds show` says it."""
    await made_tallies(sqlite_url)
    async with asked(sqlite_url, tmp_path) as server:
        viewer = server.token(Role.VIEWER)
        newest, before, *_ = (await server.get("/api/v1/rounds", viewer)).json()["items"]
        page = (await server.get(f"/rounds/{before['round']}", viewer)).text
    told = [{name: row[name] for name in row if name.startswith("tally")} for row in (newest, before)]
    assert list(told[0].values()) == [None] * 4
    assert told[1] == {"tally_n_updates": 40, "tally_worse": 33.4, "tally_better": -2.25, "tally_deviation": 3.0}
    assert "about 33 worse and -2 better of 40 updates, with noise of standard deviation 3.0" in page


async def test_text_of_a_device_is_never_markup(on_sqlite):
    """Jinja2 escapes what the database has; a reason is an operator's, or a device's."""
    db, at = on_sqlite.served.db, datetime.now(UTC)
    sent = NewUpdate(2, "a", "<b>x</b>", 1, 5, 10, 5, "dense_f32", bytes(4), at)
    noted = NewEvent(at, "client_joined", "<b>x</b>", client_id="a", round=2)
    epoch = await claim_federation(db, FEDERATION, 0.0)
    await commit_batch(db, FEDERATION, epoch, Batch(updates=[sent], events=[noted]))
    cookie = {"Cookie": f"{COOKIE}={on_sqlite.token(Role.PARTICIPANT, 'a')}"}
    mine = await on_sqlite.get("/", headers=cookie)
    assert (mine.status_code, "<b>x" in mine.text) == (200, False)
    for path in ("/events", "/rounds/2", "/devices/a"):
        shown = await on_sqlite.get(path, on_sqlite.token(Role.VIEWER))
        assert ("<b>x" in shown.text, "&lt;b&gt;x" in shown.text) == (False, True), path


async def test_who_cannot_log_in_is_told_so_on_a_page(on_sqlite):
    """Nor is a form of another site heard."""
    server = on_sqlite
    wrong = await server.post("/login", content="token=%3Cscript%3E")
    assert (wrong.status_code, "<script>" in wrong.text, "unknown" in wrong.text) == (401, False, True)
    elsewhere = {"Origin": "http://elsewhere.example"}
    for path in ("/login", "/logout"):
        assert (await server.post(path, content="token=x", headers=elsewhere)).status_code == 403
    for path in ("/", "/devices", "/rounds/1"):
        shown = await server.get(path, headers={"Cookie": f"{COOKIE}=nobody.nothing"})
        assert (shown.status_code, "not known" in shown.text) == (401, True), path


def test_nothing_of_the_page_is_from_elsewhere_or_inline():
    """As the policy in its headers demands: no address, no style and no script in its markup."""
    folder = Path(__file__).parents[2] / "foltr/api/pages"
    for path in [*folder.rglob("*.html"), *(folder / "static").glob("*.js"), *(folder / "static").glob("*.css")]:
        text = path.read_text()
        assert not [word for word in ("http://", "https://", " style=", "onclick", "innerHTML") if word in text], path
    assert "Leon Sorokin" in (folder / "static/uplot/LICENSE").read_text()
