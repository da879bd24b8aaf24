"""The API does what its OpenAPI schema says, whatever it is asked: requests drawn from the schema itself."""

import asyncio
import warnings

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as drawn_from
from support.api_server import FEDERATION
from support.waiting import PATIENCE_S

from foltr.api.app import make_app
from foltr.api.limits import RateLimiter
from foltr.api.server_state import ServerState
from foltr.api.tokens import Role, TokenFile
from foltr.storage.database import Database

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its dependencies
    import schemathesis


@pytest.mark.parametrize(
    "role",
    [Role.OPERATOR, *(pytest.param(role, marks=pytest.mark.nightly) for role in (Role.VIEWER, Role.PARTICIPANT))],
)
async def test_every_answer_is_as_the_schema_says(on_sqlite, role, seed):
    """Status, headers and bodies, for valid and invalid requests to every route, with and without a token."""
    on_sqlite.served.by_token = on_sqlite.served.by_address = RateLimiter(1e9, 10**9)
    token = on_sqlite.token(role, "a" if role is Role.PARTICIPANT else None)
    n_tried = await asyncio.to_thread(_try_all, f"{on_sqlite.url}/api/v1/openapi.json", token, seed)
    assert n_tried > 100


def test_every_route_is_described(tmp_path):
    """By a tag, a name for a method, who may call it, and one shape for each error."""
    url = f"sqlite:///{tmp_path / 'none.sqlite'}"
    told = make_app(ServerState(Database(url), FEDERATION, TokenFile(tmp_path / "tokens.json"))).openapi()
    tags = {tag["name"] for tag in told["tags"]}
    names = []
    for path, methods in told["paths"].items():
        for operation in methods.values():
            names.append(operation["operationId"])
            assert set(operation["tags"]) <= tags, path
            assert ("security" in operation) == ("x-who" in operation) == (path not in {"/health", "/ready"})
            errors = {int(status): answer for status, answer in operation["responses"].items() if int(status) >= 400}
            assert {tuple(answer["content"]) for answer in errors.values()} <= {("application/problem+json",)}
            assert "x-who" not in operation or {401, 403, 429, 500, 503} <= errors.keys()
    assert [name for name in names if "_" not in name or names.count(name) > 1] == []


def _try_all(schema_url, token, seed):
    # A stream does not end; its own tests hear it.
    schema = schemathesis.openapi.from_url(schema_url).exclude(path="/api/v1/stream")
    n_tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @drawn_from(seed)
        @settings(
            max_examples=12,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def one(case):
            nonlocal n_tried
            n_tried += 1
            case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S)

        one()
    return n_tried
