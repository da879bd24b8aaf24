"""The pages behind the overview's numbers, the participant's page and the way in, in a real Chromium."""

from datetime import UTC, datetime

import pytest
from support import page_states
from support.api_server import FEDERATION, asked
from support.erasure_database import DONE, PAUSE_REASON, PAUSED, made_erasures, pseudonym_of
from support.page_browser import DESK, PHONE, browsing, looking, seen, seen_everywhere

from foltr.api.tokens import Role
from foltr.storage.arrivals import commit_batch
from foltr.storage.federations import claim_federation
from foltr.storage.records import Batch, NewEvent

pytestmark = browsing


@pytest.fixture
async def busy(sqlite_url, tmp_path):
    """Forty rounds of five devices, of which one is in quarantine and another offline, and a flood."""
    await page_states.many_rounds(sqlite_url)
    async with asked(sqlite_url, tmp_path) as running:
        await page_states.quarantined(running.served.db)
        await page_states.flooded(running.served.db)
        yield running


async def names(page):
    return await page.locator("tbody tr td:first-child").all_text_contents()


async def test_devices_are_filtered_and_found(busy):
    """By their state and by a part of their name, with the keyboard alone; numbers lead to what they count."""
    async with looking(busy, busy.token(Role.VIEWER)) as page:
        await page.goto(f"{busy.url}/devices")
        assert await names(page) == [f"device-{i}" for i in range(5)]
        assert "online, in quarantine" in await page.text_content("tbody tr:nth-child(3)")
        assert "offline" in await page.text_content("tbody tr:nth-child(2)")
        await seen_everywhere(page, "devices")
        await page.focus("[name=state]")
        await page.select_option("[name=state]", "refused")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/devices?state=refused**")
        assert await names(page) == ["device-3", "device-4", "mallory"]
        await page.click("text=20,000 malformed")
        assert await names(page) != []
        assert "no message of this protocol" in await page.text_content("#events")
        await page.goto(f"{busy.url}/devices?search=nobody")
        assert "No device matches" in await page.text_content(".empty")
        await seen(page, "devices-none")


async def test_a_device_has_all_that_is_known_of_it(busy):
    """Its state with the reason, what became of each update, its refusals and events."""
    async with looking(busy, busy.token(Role.VIEWER)) as page:
        await page.goto(f"{busy.url}/devices/device-2")
        assert "it flips signs. Its updates are not taken." in await page.text_content(".lead")
        assert "shortened: norm 3.2 of at most 1" in await page.text_content("main")
        await page.goto(f"{busy.url}/devices/device-3")
        assert "The round was over" in await page.text_content("main")
        await seen_everywhere(page, "device")
        await page.click("section[aria-labelledby=contributions] tbody a")
        assert (await page.text_content("h1")).startswith("Round ")


async def test_a_round_says_who_and_why(busy):
    """What became of each update, its rule, its refusals; an open one what it waits for."""
    async with looking(busy, busy.token(Role.VIEWER)) as page:
        await page.goto(f"{busy.url}/rounds")
        assert (await names(page))[:2] == ["41", "40"]
        await seen_everywhere(page, "rounds")
        await page.goto(f"{busy.url}/rounds/36")
        shown = await page.text_content("main")
        for words in ("adaptive: mean of 2 of 2", "reward 0.693", "shortened", "norm 3.2 of at most 1", "50.0 %"):
            assert words in shown
        await seen_everywhere(page, "round")
        await page.goto(f"{busy.url}/rounds/40")
        assert "Abandoned: too few clients" in await page.text_content(".lead")
        await page.click("text=Round 41")
        assert "Round 41 has 1 update of at least 2" in await page.text_content(".waits")
        assert await page.is_visible(".waits a:has-text('device-3')")
        await seen(page, "round-open")
        await page.goto(f"{busy.url}/rounds/latest")
        assert await page.text_content("h1") == "Round 40"


async def test_an_erasure_is_told_where_it_changed_counts(busy):
    """On its round, in the table of rounds, and with a timeline of its own."""
    await page_states.erased(busy.served.db)
    async with looking(busy, busy.token(Role.VIEWER)) as page:
        await page.goto(f"{busy.url}/rounds/39")
        assert "1 update of this round was deleted since" in await page.text_content(".erased")
        await seen(page, "round-erased")
        await page.goto(f"{busy.url}/rounds")
        assert "2 of 3" in await page.text_content("tbody")
        await page.click(".note a")
        assert "28 updates and 27 events were deleted" in await page.text_content(".erasure")


async def test_events_come_by_themselves(busy):
    """The newest first, with filters, which hold for new ones, too."""
    db = busy.served.db
    async with looking(busy, busy.token(Role.VIEWER)) as page:
        await page.goto(f"{busy.url}/events")
        assert "mallory" in await page.text_content("#events")
        await seen_everywhere(page, "events")
        await page.goto(f"{busy.url}/events?client=device-0&round=&kind=&code=")
        assert "No event matches" in await page.text_content("#none")
        await page.wait_for_selector("#live:not([hidden])")
        epoch = await claim_federation(db, FEDERATION, 0.0)
        of_two, at = ("device-0", "device-1"), datetime.now(UTC)
        noted = [NewEvent(at, "client_offline", "<b>lost</b>", client_id=name) for name in of_two]
        await commit_batch(db, FEDERATION, epoch, Batch(events=noted))
        await page.wait_for_selector("#events tr")
        assert await page.locator("#events tr").count() == 1
        assert "<b>lost</b>" in await page.text_content("#events")
        assert await page.is_hidden("#none")


async def test_long_lists_come_page_by_page(busy, monkeypatch):
    """With a link to the next page and back to the first."""
    monkeypatch.setattr("foltr.api.pages.devices._DEVICES", 2)
    monkeypatch.setattr("foltr.api.pages.devices._CONTRIBUTIONS", 7)
    monkeypatch.setattr("foltr.api.pages.rounds._ROUNDS", 20)
    monkeypatch.setattr("foltr.api.pages.events._EVENTS", 10)
    async with looking(busy, busy.token(Role.VIEWER)) as page:
        lists = {"/devices": 3, "/devices?state=refused": 2, "/rounds": 3, "/events?refused=true": 3}
        for path, n_pages in lists.items():
            await page.goto(busy.url + path)
            found = []
            for number in range(n_pages):
                found += await page.locator("tbody tr").all_text_contents()
                assert await page.is_visible("text=First page") is (number > 0)
                if number + 1 < n_pages:
                    await page.click("[rel=next]")
            assert not await page.is_visible("[rel=next]")
            assert len(set(found)) == len(found), path
        await page.goto(f"{busy.url}/devices/device-3")
        assert await page.locator("section[aria-labelledby=contributions] tbody tr").count() == 7
        await page.click("[rel=next]")
        assert await page.locator("section[aria-labelledby=contributions] tbody tr").count() == 7


async def test_erasures_have_a_timeline_and_a_receipt(sqlite_url, tmp_path):
    """One waits, a job is paused in the middle with its reason, and who is done has a receipt to take away."""
    url = sqlite_url
    await made_erasures(url)
    async with asked(url, tmp_path) as server, looking(server, server.token(Role.VIEWER)) as page:
        await page.goto(f"{server.url}/erasures")
        assert "1 waiting" in await page.text_content(".counts")
        assert PAUSE_REASON.capitalize() in await page.text_content(".job")
        assert await page.locator(f"#e-{pseudonym_of(DONE)} .done").count() == 3
        assert await page.locator(f"#e-{pseudonym_of(PAUSED)} .now").count() == 1
        links = await page.eval_on_selector_all("a[download]", "all => all.map(one => one.getAttribute('href'))")
        assert len(links) == 2
        assert (await server.get(links[0], server.token(Role.VIEWER))).text.count(".") == 2
        await seen_everywhere(page, "erasures")
    for name in (DONE, PAUSED):
        async with asked(url, tmp_path) as server, looking(server, server.token(Role.PARTICIPANT, name), PHONE) as page:
            await page.goto(server.url)
            assert "was forgotten on" in await page.text_content(".lead")
            assert await page.is_visible("text=My receipt") is (name == DONE)
            await seen(page, f"participant-{name}")


async def test_a_token_goes_in_by_the_form_and_out_again(busy):
    """By keyboard alone; no script sees the cookie."""
    async with looking(busy) as page:
        await page.goto(busy.url)
        await seen_everywhere(page, "login")
        await page.focus("#token")
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


async def test_a_participant_sees_its_own_part(busy):
    """Its contributions, and how to be forgotten: here, too, if the server has access to the broker."""
    busy.served.credentials = object()
    mine = busy.token(Role.PARTICIPANT, "device-3")
    async with looking(busy, mine, DESK, forgiven="the server responded with a status of 403") as page:
        await page.goto(busy.url)
        assert await page.text_content("h1") == f"My part in {FEDERATION}"
        assert "device-3 takes part" in await page.text_content(".lead")
        text = await page.text_content("main")
        assert ("device-2" in text, "forget_me()" in text) == (False, True)
        await page.focus("#wish")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Forget me for ever"
        await seen_everywhere(page, "participant")
        for path in ("/devices", "/devices/device-3", "/rounds", "/rounds/1", "/events", "/erasures"):
            answer = await page.goto(busy.url + path)
            assert (answer.status, "mallory" in await page.content()) == (403, False)
        await seen(page, "participant-refused")


async def test_what_is_not_there_is_said_on_a_page(busy):
    """With the band, and a way back."""
    forgiven = "the server responded with a status of 4"
    async with looking(busy, busy.token(Role.VIEWER), forgiven=forgiven) as page:
        for path, status, words in (
            ("/rounds/99", 404, "has no round 99"),
            ("/rounds/x", 404, "This address has no page"),
            ("/devices/nobody", 404, "knows no client of this name"),
            ("/devices/a%20b", 404, "This address has no page"),
            ("/events?round=x", 422, "round: this is no number"),
            ("/events?kind=x", 422, "kind: choose one of the list"),
            ("/devices?search=%00", 422, "search: this is no name"),
        ):
            answer = await page.goto(busy.url + path)
            assert (answer.status, words in await page.text_content("main")) == (status, True), path
            assert await page.is_visible("#band")
        await seen(page, "not-found")
