"""``foltr api``: serve the HTTP API and its page, and manage access tokens."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import structlog
import typer

from foltr.cli import options
from foltr.cli.fields import argument, option
from foltr.cli.operator.identities import require_same_federation
from foltr.cli.output import configure_logging, console, print_json, print_rows
from foltr.cli.progress import stop_on_signal
from foltr.cli.settings import Settings, load_settings, takes_settings
from foltr.core.operator.credentials import Credentials, read_credentials
from foltr.operations.operator_access import redirect

if TYPE_CHECKING:
    from foltr.api.tokens import TokenRecord

log = structlog.get_logger(__name__)

app = typer.Typer(help="Serve the HTTP API and its page, and make tokens for it.", no_args_is_help=True)
token_app = typer.Typer(help="Make, list and revoke tokens of the HTTP API.", no_args_is_help=True)
app.add_typer(token_app, name="token")

RUN_KEYS = (
    *("db_url", "federation", "credentials", "broker_url"),
    *("api_host", "api_port", "api_tokens", "api_connections_per_address", "api_proxies", "log_level", "log_format"),
)
TOKEN_KEYS = ("federation", "api_tokens")
_LONGEST_DAYS = 3650


@app.command("run")
@takes_settings(RUN_KEYS)
def run(**flags: Any) -> None:
    """Serve until SIGTERM or Ctrl-C: read-only, and also while the database is away.

    With --credentials operator.json orders that are signed already may be posted. That file signs none: the enrolment
    key stays with the operator.
    """
    from foltr.api.app import make_app
    from foltr.api.server import listen, make_server, read_proxies
    from foltr.api.server_state import ServerState
    from foltr.api.tokens import TokenFile
    from foltr.storage.database import Database

    settings = load_settings(**flags)
    configure_logging(settings.log_level, settings.log_format)
    proxies = read_proxies(settings.api.api_proxies)
    credentials = _operator(settings)
    federation = settings.federation if credentials is None else credentials.federation
    tokens = TokenFile(Path(settings.api.api_tokens))
    n_tokens = len(tokens.records())
    application = make_app(ServerState(Database(settings.db_url), federation, tokens, credentials))
    listener = listen(settings.api.api_host, settings.api.api_port)
    port = listener.getsockname()[1]
    server = make_server(application, proxies, settings.api.api_connections_per_address)

    async def serve() -> None:
        stop_on_signal(lambda: setattr(server, "should_exit", True))
        await server.serve(sockets=[listener])

    host = f"[{settings.api.api_host}]" if ":" in settings.api.api_host else settings.api.api_host
    log.info("api_started", federation=federation, url=f"http://{host}:{port}")
    if not n_tokens:
        log.warning("api_tokens_missing", tokens=str(tokens.path), next_step="foltr api token new viewer")
    asyncio.run(serve())
    log.info("api_stopped", federation=federation)


@token_app.command("new")
@takes_settings(TOKEN_KEYS)
def token_new(
    role: Annotated[Literal["viewer", "operator", "participant"], argument("A name that says what the token is for")],
    client: Annotated[str | None, option("For a participant: the client's name")] = None,
    days: Annotated[int, option("Days until it expires", min=1, max=_LONGEST_DAYS)] = 90,
    json: options.Json = False,
    **flags: Any,
) -> None:
    """Make a token and print it once; the file keeps only its hash, neither the token nor a client's name.

    A viewer reads everything. An operator may also post signed orders. A participant reads one client's
    contributions and receipt.
    """
    from foltr.api.tokens import Role, TokenFile

    settings = load_settings(**flags)
    text, record = TokenFile(Path(settings.api.api_tokens)).add(
        Role(role), settings.federation, days * 86_400.0, client
    )
    if json:
        print_json({"id": record.id, "role": str(record.role), "expires_at": record.expires_at, "token": text})
        return
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@token_app.command("list")
@takes_settings(TOKEN_KEYS)
def token_list(json: options.Json = False, **flags: Any) -> None:
    """List the tokens. The file has only their hashes, so a token cannot be shown again."""
    from foltr.api.tokens import TokenFile

    path = Path(load_settings(**flags).api.api_tokens)
    print_rows([*map(_row, TokenFile(path).records().values())], title=f"Tokens of {path}", as_json=json)


@token_app.command("revoke")
@takes_settings(TOKEN_KEYS)
def token_revoke(token_id: Annotated[str, argument("As listed", metavar="ID")], **flags: Any) -> None:
    """Revoke a token; a running server refuses it at once."""
    from foltr.api.tokens import TokenFile

    record = TokenFile(Path(load_settings(**flags).api.api_tokens)).revoke(token_id)
    console.print(f"revoked token {record.id} of the role {record.role}", markup=False, highlight=False)


def _operator(settings: Settings) -> "Credentials | None":
    if settings.credentials is None:
        return None
    credentials = read_credentials(Path(settings.credentials), "operator")
    require_same_federation(settings, credentials)
    url = settings.broker_url if "broker_url" in settings.model_fields_set else None
    return credentials.model_copy(update={"broker": redirect(credentials.broker, url)})


def _row(record: "TokenRecord") -> dict[str, str]:
    lasting = "expired" if time.time() >= record.expires_at else "valid"
    return {
        "id": record.id,
        "role": str(record.role),
        "federation": record.federation,
        "expires": f"{datetime.fromtimestamp(record.expires_at, UTC):%Y-%m-%d %H:%M}",
        "state": lasting if record.revoked_at is None else "revoked",
    }
