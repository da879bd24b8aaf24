"""A real Chromium that looks at the pages: no console error, no request to anybody else, no fault that axe finds."""

import os
import shutil
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.async_api import async_playwright
from support.waiting import PATIENCE_S

from foltr.api.access import COOKIE

CHROMIUM = shutil.which("chromium")
browsing = [pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
# Only the faults come over: all that axe looked at is a hundred times as much.
_FAULTS = """axe.run({resultTypes: ["violations"]})
    .then(found => found.violations.map(fault => [fault.id, fault.nodes.map(node => node.html)]))"""
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1200, "height": 900}
# A folder to look at what the tests have seen.
SCREENSHOTS = os.environ.get("FOLTR_TEST_SCREENSHOTS")
SCREENS = {"desk": (DESK, False), "phone-dark": (PHONE, True)}


@asynccontextmanager
async def looking(server, token=None, viewport=None, dark=False, forgiven=None):
    """A page of a browser that has the cookie; it fails at the end if anything was an error, or went elsewhere.

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
    """Keep a picture, if somebody wants to look at it; nothing is wider than the screen, and axe finds no fault."""
    if SCREENSHOTS:
        await page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)
    assert await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    # Evaluated, because the page's own policy lets no other script in.
    await page.evaluate(f"if (!window.axe) {{ {AXE} }}")
    assert await page.evaluate(_FAULTS) == []


async def seen_everywhere(page, name):
    """The same on a desk in light and on a phone in dark: no style asks for both."""
    for screen, (viewport, dark) in SCREENS.items():
        await page.set_viewport_size(viewport)
        await page.emulate_media(color_scheme="dark" if dark else "light")
        await seen(page, f"{name}-{screen}")
    await page.set_viewport_size(DESK)
    await page.emulate_media(color_scheme="light")
