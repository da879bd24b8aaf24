"""The HTTP API over real sockets and databases: what it shows, whom it lets in, and what it says when it cannot."""

import asyncio
import re

import httpx2
import pytest
from cli.commands import foltr
from sqlalchemy import text
from support.api_server import FEDERATION, asked
from support.databases import PostgresDatabases, migrated_sqlite
from support.erasure_database import BEGAN, DONE, STAYED, made_erasures, pseudonym_of, tampered
from support.history_database import made_history
from support.postgres_server import PostgresServer
from support.tally_database import made_tallies
from support.waiting import PATIENCE_S, until

from foltr.api.access import COOKIE
from foltr.api.limits import RateLimiter
from foltr.api.middleware import MOST_POSTED
from foltr.api.server import listen
from foltr.api.tokens import Role
from foltr.core.errors import SettingsError
from foltr.core.protocol.states import OrderOutcome
from foltr.storage.arrivals import commit_batch
from foltr.storage.database import Database
from foltr.storage.federations import claim_federation
from foltr.storage.migrate import downgrade
from foltr.storage.records import Batch, MembershipChange, NewEvent, NewOrder

from .conftest import process

LISTS = ("rounds", "clients", "events", "models", "erasures", "jobs", "audit", "orders")


async def test_a_viewer_sees_rounds_clients_and_models(server):
    """As the command line shows them, page by page."""
    viewer = server.token(Role.VIEWER)
    newest, first = (await server.get("/api/v1/rounds", viewer)).json()["items"]
    assert (newest["round"], newest["state"], first["rule"]) == (2, "collecting", "median")
    whole = (await server.get("/api/v1/rounds/1", viewer)).json()
    assert {line["client_id"]: line["fate"] for line in whole["contributions"]} == {
        "a": "kept",
        "b": "clipped",
        "c": "dropped",
    }
    assert whole["aggregation"]["parameters"] == {"n": 3.0, "m": 1.0}
    assert (await server.get("/api/v1/rounds/latest", viewer)).json() == whole
    b = (await server.get("/api/v1/clients/b", viewer)).json()
    assert (b["client"]["quarantine_reason"], b["fates"]["clipped"]) == ("it flips signs", 1)
    assert [row["version"] for row in (await server.get("/api/v1/models", viewer)).json()["items"]] == [1, 0]
    assert (await server.get("/api/v1/models/1", viewer)).json()["round"] == 1
    for name in LISTS:
        assert (await server.get(f"/api/v1/{name}", viewer)).status_code == 200, name


async def test_every_list_continues_by_its_link(sqlite_url, tmp_path):
    """One item at a time makes the whole list, in its order; the last page has no link."""
    await made_erasures(sqlite_url)
    given = [NewOrder(number, "set_deadline", b"x", bytes(32), OrderOutcome.OBEYED, BEGAN) for number in (1, 2)]
    noted = [NewEvent(BEGAN, "client_joined", "", client_id=STAYED, round=number) for number in (1, 2)]
    joined = [MembershipChange("device-0", "joined", BEGAN)]
    async with Database(sqlite_url) as db:
        epoch = await claim_federation(db, FEDERATION, 0.0)
        await commit_batch(db, FEDERATION, epoch, Batch(orders=given, events=noted, membership=joined))
    async with asked(sqlite_url, tmp_path) as server:
        served = {name: (server.token(Role.VIEWER), f"/api/v1/{name}") for name in LISTS}
        served["contributions"] = (server.token(Role.PARTICIPANT, STAYED), "/api/v1/me/contributions")
        server.served.by_token = RateLimiter(1e9, 10**9)
        for name, (token, path) in served.items():
            whole, following, items = (await server.get(path, token)).json(), f"{path}?limit=1", []
            while following is not None:
                page = (await server.get(following, token)).json()
                items, following = items + page["items"], page["next"]
                assert len(page["items"]) <= 1
            assert {"items": items, "next": None} == whole
            assert len(items) > 1, name
            if name == "rounds":  # a count is lower than it was, where updates were erased since
                assert [(row["n_updates"], row["n_erased"]) for row in items] == [(0, 0), (0, 0), (1, 2), (1, 3)]


async def test_lists_are_filtered(server):
    """As the storage's own tests say which there are; a link to the next page keeps the filters."""
    viewer = server.token(Role.VIEWER)

    async def listed(query):
        return (await server.get(f"/api/v1/{query}", viewer)).json()

    (b,) = (await listed("clients?state=quarantined&search=B"))["items"]
    assert (b["n_contributions"], b["refusals"], b["quarantine_reason"]) == (1, {}, "it flips signs")
    newest = await listed("events?limit=2&refused=false&round=1")
    assert [event["kind"] for event in newest["items"]] == ["quarantine_proposed"] * 2
    assert newest["next"].startswith("/api/v1/events?limit=2&refused=false&round=1&before=")
    (of_c,) = (await listed("events?client=c&round=1&kind=quarantine_proposed"))["items"]
    assert of_c["detail"] == "far away in 9 of 10 rounds"
    assert await listed("events?refused=true") == {"items": [], "next": None}


async def test_nobody_is_called_erased_while_rows_or_a_data_key_are_left(tmp_path):
    """By the lists, to the participant itself, on its page, and where a client of the name is looked for."""
    url, pseudonym = migrated_sqlite(tmp_path / "foltr.sqlite"), pseudonym_of(DONE)
    await made_erasures(url)
    async with asked(url, tmp_path) as server:
        viewer, mine = server.token(Role.VIEWER), server.token(Role.PARTICIPANT, DONE)
        for state in ("erasing", "erased"):
            left = f"state = '{state}', completed_at = NULL, audit_seq = NULL, receipt = NULL"
            tampered(tmp_path, f"UPDATE erasures SET {left} WHERE pseudonym = '{pseudonym}'")  # noqa: S608 (ours)
            shown = (await server.get(f"/api/v1/erasures/{pseudonym}", viewer)).json()
            for one in (shown, (await server.get("/api/v1/me", mine)).json()["erasure"]):
                assert (one["state"], one["forget_state"], one["erased_at"]) == ("erasing", "erasing", None)
            page = await server.get("/", headers={"Cookie": f"{COOKIE}={mine}"})
            for answer in (page, await server.get(f"/api/v1/clients/{DONE}", viewer)):
                assert "This client is being erased" in answer.text


async def test_no_round_is_the_latest_before_one_has_ended(sqlite_url, tmp_path):
    """It says where to look."""
    async with asked(sqlite_url, tmp_path) as server:
        answer = await server.get("/api/v1/rounds/latest", server.token(Role.VIEWER))
    assert (answer.status_code, "/api/v1/status" in answer.json()["detail"]) == (404, True)


async def test_a_database_that_was_put_in_the_place_of_another_is_read(on_sqlite, tmp_path):
    """As by a restore: a server that goes on would else show the one that is gone, with whom it held, for ever."""
    after, viewer = tmp_path / "backup.sqlite", on_sqlite.token(Role.VIEWER)
    await made_tallies(migrated_sqlite(after))

    async def names():
        return [row["client_id"] for row in (await on_sqlite.get("/api/v1/clients", viewer)).json()["items"]]

    assert await names() == ["a", "b", "c"]
    for path in tmp_path.glob("foltr.sqlite*"):
        path.unlink()
    after.rename(tmp_path / "foltr.sqlite")
    assert await names() == ["a"]
    assert (await on_sqlite.get("/ready")).status_code == 200


async def test_no_answer_has_keys_seeds_or_weights(server):
    """They are nobody's business who looks."""
    viewer = server.token(Role.VIEWER)
    for name in (*LISTS, "rounds/1", "clients/a", "models/1"):
        shown = (await server.get(f"/api/v1/{name}", viewer)).text
        assert not [word for word in ("seed", "public_key", '"weights"', "optimizer", "payload") if word in shown], name


async def test_a_participant_sees_its_own_and_nothing_else(server):
    """Neither a list nor another client's page."""
    mine = server.token(Role.PARTICIPANT, "b")
    me = (await server.get("/api/v1/me", mine)).json()
    assert (me["client_id"], me["fates"]["clipped"], me["erasure"]) == ("b", 1, None)
    assert [line["client_id"] for line in (await server.get("/api/v1/me/contributions", mine)).json()["items"]] == ["b"]
    assert (await server.get("/api/v1/me/receipt", mine)).status_code == 404
    for path in (*LISTS, "rounds/1", "clients/b", "receipts/" + "0" * 32):
        assert (await server.get(f"/api/v1/{path}", mine)).status_code == 403, path
    assert (await server.get("/api/v1/me", server.token(Role.VIEWER))).status_code == 403


async def test_who_shows_no_good_token_is_not_let_in(on_sqlite):
    """401 without one, 403 where it was revoked or its role is too low."""
    viewer = on_sqlite.token(Role.VIEWER)
    for name in LISTS:
        assert (await on_sqlite.get(f"/api/v1/{name}")).status_code == 401, name
    assert (await on_sqlite.get("/api/v1/rounds", "nobody.nothing")).status_code == 401
    assert (await on_sqlite.get("/api/v1/rounds", on_sqlite.token(Role.VIEWER, lasts_s=0.0))).status_code == 401
    posted = await on_sqlite.post("/api/v1/orders", viewer, content=b"x")
    assert (posted.status_code, "operator" in posted.json()["detail"]) == (403, True)
    on_sqlite.served.tokens.revoke(viewer.split(".")[0])
    answer = await on_sqlite.get("/api/v1/rounds", viewer)
    assert (answer.status_code, "revoked" in answer.json()["detail"]) == (403, True)


async def test_what_is_not_there_or_makes_no_sense_is_said_so(on_sqlite):
    """Never with an error of ours."""
    missing = ("rounds/99", "models/99", "clients/nobody", "erasures/" + "0" * 32, "receipts/" + "0" * 32, "nothing")
    wrong = ("rounds?limit=0", "rounds?limit=1001", "rounds?before=-1", "rounds/x", "rounds/99999999999999999999")
    wrong += ("clients?after=%00", "clients?search=%00", "clients?state=x", "clients/a%20b", "erasures/short")
    wrong += ("events?kind=x", "events?before=-1", "audit?after=x")
    viewer = on_sqlite.token(Role.VIEWER)
    for path in (*missing, *wrong):
        answer = await on_sqlite.get(f"/api/v1/{path}", viewer)
        assert answer.status_code == (404 if path in missing else 422), path
        problem = answer.json()
        assert (problem["status"], problem["type"]) == (answer.status_code, "about:blank")
        assert problem["detail"]
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert ("errors" in problem) == (path in wrong)


@pytest.mark.parametrize(
    ("error", "status"), [(RuntimeError("secret"), 500), (SettingsError("secret"), 500), (TimeoutError(), 503)]
)
async def test_an_error_of_ours_is_a_problem_that_tells_nothing_of_us(on_sqlite, monkeypatch, error, status):
    """The cause is in the log alone."""

    async def fail(*_arguments, **_options):
        raise error

    monkeypatch.setattr("foltr.storage.pages.page_models", fail)
    answer = await on_sqlite.get("/api/v1/models", on_sqlite.token(Role.VIEWER))
    assert (answer.status_code, answer.json()["status"], "secret" in answer.text) == (status, status, False)
    assert answer.headers["Content-Type"] == "application/problem+json"


async def test_a_federation_that_never_ran_is_down_and_no_error_of_ours(on_sqlite):
    """Everywhere: with the verdict, and with what to type."""
    on_sqlite.served.federation = "other"
    answer = await on_sqlite.get("/api/v1/status", on_sqlite.token(Role.VIEWER))
    assert answer.status_code == 503
    assert [each["reason"] for each in answer.json()["verdict"]["findings"]] == ["federator_stopped"]
    assert "Start the federator" in answer.json()["detail"]
    shown = (await on_sqlite.get("/metrics", on_sqlite.token(Role.VIEWER))).text
    assert re.search(r'foltr_findings\{[^}]*reason="federator_stopped"[^}]*\} 1.0', shown)
    assert re.search(r"foltr_database_up\{[^}]*\} 1.0", shown)
    problem = (await on_sqlite.get("/ready")).json()
    assert "another one" in problem["detail"]


async def test_who_asks_too_often_is_told_when_to_ask_again(on_sqlite):
    """Each token and each address by itself."""
    viewer, other = on_sqlite.token(Role.VIEWER), on_sqlite.token(Role.VIEWER)
    on_sqlite.served.by_token = RateLimiter(0.01, 2)
    on_sqlite.served.by_address = RateLimiter(0.01, 1)
    statuses = [(await on_sqlite.get("/api/v1/orders", viewer)).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    answers = [await on_sqlite.get("/api/v1/orders") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [401, 429]
    assert int(answers[1].headers["Retry-After"]) > 0
    assert (await on_sqlite.get("/api/v1/orders", other)).status_code == 200


async def test_more_than_anybody_posts_is_not_read(on_sqlite):
    """Whether its length is told beforehand or not."""
    operator = on_sqlite.token(Role.OPERATOR)
    too_long = bytes(MOST_POSTED + 1)
    on_sqlite.served.credentials = object()  # what would read the order

    async def drop_by_drop():
        for _ in range(5):
            yield too_long[: len(too_long) // 4]

    for content in (too_long, drop_by_drop()):
        assert (await on_sqlite.post("/api/v1/orders", operator, content=content)).status_code == 413


async def test_a_server_without_access_to_the_broker_hands_on_no_order(on_sqlite):
    """It says how to start one that does."""
    answer = await on_sqlite.post("/api/v1/orders", on_sqlite.token(Role.OPERATOR), content=b"x")
    assert (answer.status_code, "--credentials" in answer.json()["detail"]) == (409, True)


async def test_every_answer_says_what_a_page_may_do(on_sqlite):
    """No script, style or frame of anybody else, and nothing is kept by a cache."""
    for path in ("/health", "/nothing", "/api/v1/rounds"):
        headers = (await on_sqlite.get(path)).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


async def test_it_outlives_the_database(tmp_path):
    """Alive, not ready, 503 with what to do while PostgreSQL is away; then it answers again by itself."""
    postgres = PostgresServer()
    try:
        await asyncio.to_thread(postgres.start)
        url = PostgresDatabases(postgres).migrated()
        await made_history(url, FEDERATION)
        async with asked(url, tmp_path) as server:
            viewer = server.token(Role.VIEWER)
            assert (await server.get("/api/v1/rounds", viewer)).status_code == 200
            await asyncio.to_thread(postgres.kill)

            async def ready(status):
                return (await server.get("/ready")).status_code == status

            await until(lambda: ready(503), "it says that it is ready")
            assert (await server.get("/health")).status_code == 200
            for path in ("/api/v1/rounds", "/api/v1/rounds/1", "/api/v1/status", "/api/v1/orders"):
                answer = await server.get(path, viewer)
                assert (answer.status_code, "foltr doctor" in answer.json()["detail"]) == (503, True), path
            await asyncio.to_thread(postgres.start)
            await until(lambda: ready(200), "it does not see that the database is back")
            assert (await server.get("/api/v1/rounds", viewer)).status_code == 200
    finally:
        postgres.remove()


async def test_the_verdict_is_down_from_the_moment_that_the_database_is_away(on_sqlite, tmp_path):
    """Not the one from before, which supervisors have just asked for."""
    assert (await on_sqlite.get("/ready")).status_code == 200
    for path in tmp_path.glob("foltr.sqlite*"):
        path.unlink()
    answer = await on_sqlite.get("/api/v1/models", on_sqlite.token(Role.VIEWER))
    (finding,) = answer.json()["verdict"]["findings"]
    assert answer.status_code == 503
    assert finding["reason"] in ("database_unreachable", "database_gone")  # the cause may be looked up a moment later


@pytest.mark.parametrize(
    ("change", "reason", "step"),
    [
        (lambda db: downgrade(db, "0001"), "schema_older", "foltr db upgrade"),
        (lambda db: set_revision(db, "9999"), "schema_newer", "Install the version of foltr"),
    ],
)
async def test_tables_of_another_version_are_down_everywhere(on_sqlite, change, reason, step):
    """Also while they can still be read: the status and the metrics say it, each kind with its own next step."""
    await change(on_sqlite.served.db)
    viewer = on_sqlite.token(Role.VIEWER)
    for path in ("/ready", "/api/v1/status"):
        answer = await on_sqlite.get(path, viewer)
        findings = answer.json()["verdict"]["findings"]
        assert (answer.status_code, [finding["reason"] for finding in findings]) == (503, [reason]), path
        assert step in answer.json()["detail"]
    shown = (await on_sqlite.get("/metrics", viewer)).text
    assert re.search(r'foltr_findings\{[^}]*reason="' + reason + r'"[^}]*\} 1.0', shown)


async def set_revision(db: Database, revision: str) -> None:
    """Let the tables be of another version, of which nothing else is different."""
    async with db.transaction() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision})


async def test_to_ask_makes_no_database(tmp_path):
    """A SQLite file that is not there is said to be away, and still is not there; Prometheus is answered, to alert."""
    async with asked(f"sqlite:///{tmp_path / 'none.sqlite'}", tmp_path) as server:
        assert (await server.get("/api/v1/rounds", server.token(Role.VIEWER))).status_code == 503
        assert (await server.get("/api/v1/rounds")).status_code == 401
        assert (await server.get("/ready")).status_code == 503
        answer = await server.get("/metrics", server.token(Role.VIEWER))
        assert (answer.status_code, "foltr_rounds_total" in answer.text) == (200, False)
        assert re.search(r"foltr_database_up\{[^}]*\} 0.0", answer.text)
        assert (await server.get("/metrics")).status_code == 401
    assert not (tmp_path / "none.sqlite").exists()


async def test_the_command_serves_and_names_nobody_in_its_log(history_url, tmp_path):
    """A process as an operator starts it; no line has the name of a client that was asked for, in its path either."""
    token = foltr("api", "token", "new", "viewer", "--federation", FEDERATION, cwd=tmp_path).stdout.strip()
    ask = {"Authorization": f"Bearer {token}"}
    async with process(history_url, tmp_path) as (port, said, running):
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=ask, timeout=PATIENCE_S) as client:
            answer = await client.get("/api/v1/clients/b")
            assert answer.json()["client"]["client_id"] == "b"
            assert (await client.get("/api/v1/clients/somebody-else")).status_code == 404
        running.terminate()
        assert await asyncio.to_thread(running.wait, PATIENCE_S) == 0
    assert "api_started" in said()
    assert "somebody" not in said()
    assert token.split(".")[1] not in said()


def test_a_port_that_is_taken_is_named(sqlite_url, tmp_path):
    """It is a wrong setting (2), and no broker or database that is away (3)."""
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        done = foltr("api", "run", "--db", sqlite_url, "--port", port, cwd=tmp_path, code=2)
    assert f"nothing can listen on 127.0.0.1:{port}; name another one" in done.stderr
