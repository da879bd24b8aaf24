"""Bytes that are no text, or no ASCII, in every place of a request: the answer is 4xx with what is wrong, never 5xx."""

import asyncio
import itertools
import re

import pytest
from cli.commands import IS_NIGHT
from support.api_server import FEDERATION, asked

from foltr.api.limits import RateLimiter
from foltr.api.tokens import Role
from foltr.core.operator.credentials import BrokerAccess, read_credentials
from foltr.core.operator.folder import create_authority

# UTF-8 of more than ASCII, bytes that are no UTF-8, a NUL, what breaks a parser of addresses, and what is long.
VALUES = [
    *("jos\u00e9".encode(), b"\xff\xfe", b"a\x80b", "\u2603".encode() * 20),
    *(b"[", b"http://[::1", b"//[x]", b"%", b'=;,"', b"9" * 5000),
]
HEADERS = [
    b"Authorization", b"Cookie", b"Origin", b"Host", b"Content-Type", b"Sec-Fetch-Site", b"X-Forwarded-For",
    b"X-Forwarded-Proto", b"Accept", b"Range", b"If-None-Match", b"If-Modified-Since", b"Last-Event-ID", b"Upgrade",
    b"Content-Length", b"Transfer-Encoding", b"Expect", b"Connection",
]  # fmt: skip
PATHS = [
    *("/", "/health", "/ready", "/metrics", "/static/band.js", "/devices", "/devices/a", "/rounds", "/rounds/1"),
    *("/events", "/erasures", "/api/v1/openapi.json", "/api/v1/status"),
    *("/api/v1/rounds", "/api/v1/rounds/1", "/api/v1/clients", "/api/v1/clients/a"),
    *("/api/v1/models", "/api/v1/models/1", "/api/v1/erasures", "/api/v1/erasures/" + "0" * 32),
    *("/api/v1/receipts/" + "0" * 32, "/api/v1/jobs", "/api/v1/audit", "/api/v1/orders", "/api/v1/me"),
    *("/api/v1/me/contributions", "/api/v1/me/receipt", "/api/v1/stream", "/nothing", "/static/nothing"),
]
POSTS = ["/login", "/logout", "/forget", "/api/v1/orders", "/api/v1/me/forget"]


@pytest.fixture
async def server(history_url, tmp_path):
    access = BrokerAccess(broker_url="mqtt://127.0.0.1:9")
    with create_authority(tmp_path / "operator", FEDERATION, federator=access, operator=access):
        credentials = read_credentials(tmp_path / "operator" / "operator.json", "operator")
    async with asked(history_url, tmp_path, credentials=credentials) as running:
        running.served.by_token = running.served.by_address = RateLimiter(1e9, 10**9)
        yield running


def request(method, path, headers=(), body=b""):
    """The bytes of a request."""
    names = {name.lower() for name, _ in headers}
    more = [(name, value) for name, value in ((b"Host", b"x"), (b"Connection", b"close")) if name.lower() not in names]
    if method == b"POST" and b"content-length" not in names:
        more.append((b"Content-Length", b"%d" % len(body)))
    lines = b"".join(b"%b: %b\r\n" % one for one in (*headers, *more))
    return b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, path, lines, body)


async def status_of(server, sent):
    """The status of the answer, and its text; None where the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    try:
        writer.write(sent)
        head = await reader.readline()
        if b"text/event-stream" in (rest := await reader.read(65_536)):
            return 200, rest
        return int(head.split()[1]) if head else None, rest
    finally:
        writer.close()


def quoted(value):
    return b"".join(b"%%%02X" % byte for byte in value)


def requests(token):
    """Every request with one hostile value."""
    authorization = b"Authorization", b"Bearer " + token.encode()
    for value in VALUES:
        for header in HEADERS:
            for path in ("/", "/api/v1/rounds", "/static/band.js", "/events"):
                shown = () if header == b"Authorization" else (authorization,)
                yield request(b"GET", path.encode(), (*shown, (header, value)))
            for path in POSTS:
                yield request(b"POST", path.encode(), (authorization, (header, value)), b"token=x&wish=x")
        yield request(b"GET", b"/", ((b"Authorization", b"Bearer " + value),))
        yield request(b"GET", b"/", ((b"Cookie", b"foltr_token=" + value),))
        yield request(b"GET", b"/", ((b"Cookie", b"foltr_token=" + token.encode() + value),))
        for path in PATHS:
            text = quoted(value)
            for one in (b"/" + text, b"%2F..%2F" + text, b"?" + text + b"=" + text, value):
                yield request(b"GET", path.encode() + one, (authorization,))
            for name in (b"limit", b"before", b"after"):
                yield request(b"GET", path.encode() + b"?" + name + b"=" + quoted(value), (authorization,))
        for path in POSTS:
            for body in (value, *(name + one for name in (b"token=", b"wish=") for one in (value, quoted(value)))):
                for kind in (b"application/x-www-form-urlencoded", b"application/octet-stream", b"multipart/form-data"):
                    headers = (authorization, (b"Content-Type", kind))
                    yield request(b"POST", path.encode(), headers, body)
                    yield request(b"POST", path.encode(), headers[1:], body)


async def test_no_bytes_make_an_error_of_ours(server, caplog):
    """In no role and place, and no exception is logged: at night every request, else one in 24 of each role."""
    step = 1 if IS_NIGHT else 24
    found = []
    for number, (role, client) in enumerate(((Role.VIEWER, None), (Role.OPERATOR, None), (Role.PARTICIPANT, "a"))):
        for sent in itertools.islice(requests(server.token(role, client)), 8 * number % step, None, step):
            status, told = await status_of(server, sent)
            if status is not None and status >= 500:
                found.append((role, status, sent[:200], told[-200:]))
    assert not found
    assert not caplog.records


async def test_it_says_what_is_wrong(server):
    """Of a wish that is no line of the command, of an origin that is no address, of a token that is no token."""
    authorization = b"Authorization", b"Bearer " + server.token(Role.PARTICIPANT, "a").encode()
    for path, headers, body, status in (
        (b"/forget", [], b"wish=jos\xc3\xa9", 400),
        (b"/forget", [], b"wish=%FF%FE", 400),
        (b"/api/v1/me/forget", [], "jos\u00e9".encode(), 400),
        (b"/login", [(b"Origin", b"http://[::1")], b"token=x", 403),
        (b"/logout", [(b"Origin", b"//[x]")], b"", 403),
        (b"/login", [(b"Origin", b"http://x")], "token=jos\u00e9".encode(), 401),
    ):
        found, told = await status_of(server, request(b"POST", path, [authorization, *headers], body))
        assert found == status, (path, headers, body)
        assert re.search(rb"not the line that the command prints|malformed|another site|unknown", told), told
