"""``foltr rounds replay``: whether a stored model follows from the stored updates, or what it is without a client."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from foltr.cli import options
from foltr.cli.database import no_such_client, reason_as_json, run_query
from foltr.cli.output import report
from foltr.cli.progress import telling
from foltr.cli.writing import check_folder
from foltr.core.errors import SettingsError

if TYPE_CHECKING:
    from foltr.federator.closing.replay import Counterfactual, Replayed
    from foltr.storage.database import Database

_SHOWN_AFTER_S = 2.0


def replay(
    number: Annotated[
        int | None, typer.Argument(metavar="[ROUND]", min=1, max=2**31 - 1, help="The round to aggregate again")
    ] = None,
    without: Annotated[
        str | None, typer.Option("--without", metavar="CLIENT", help="Aggregate without this client's updates")
    ] = None,
    first: Annotated[
        int | None,
        typer.Option("--from", metavar="ROUND", min=1, max=2**31 - 1, help="With --without: from this round on"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.npy", help="With --without: write the weights, float32")
    ] = None,
    db: options.Db = None,
    federation: options.Federation = None,
    keys: options.Keys = None,
    json: options.Json = False,
) -> None:
    """Aggregate a stored round again: exit code 0 if its model follows bit for bit from what is stored, else 1.

    With --without CLIENT --from ROUND: aggregate that round and all after it without the client's updates, each on top
    of the one before, and tell how far that is from the newest model. It is not the model that there would be without
    the client: the others' updates were made on models that had learned from it; and what it taught before ROUND stays.

    Nothing is stored in the database.
    """
    if without is None:
        if first is not None or out is not None:
            raise SettingsError("without: --from and --out belong to --without CLIENT")
        if number is None:
            raise SettingsError("round: name the round to replay, or a client with --without CLIENT --from ROUND")
    elif number is not None or first is None:
        raise SettingsError("from: --without CLIENT takes the first round as --from ROUND")
    if out is not None:
        check_folder(out)

    async def query(database: "Database", name: str) -> None:
        if without is not None and first is not None:
            await _leave_out(database, name, without, first, out=out, json=json)
        elif number is not None:
            await _replay(database, name, number, json=json)

    run_query(db, federation, query, keys=keys, opens=True)


async def _replay(database: "Database", name: str, number: int, *, json: bool) -> None:
    from foltr.federator.closing.collected_updates import load_recipes
    from foltr.federator.closing.replay import replay_round

    asked = {"federation": name, "round": number, "equal": None}
    with reason_as_json(json, asked), telling(after_s=_SHOWN_AFTER_S) as tell:
        found = await replay_round(database, await load_recipes(database, name), number, _rounds(tell))
    _tell_replayed(found, json=json)
    if found.differs:
        raise typer.Exit(1)


async def _leave_out(
    database: "Database", name: str, without: str, first: int, *, out: Path | None, json: bool
) -> None:
    from foltr.federator.closing.collected_updates import load_recipes
    from foltr.federator.closing.replay import counterfactual
    from foltr.storage.queries import get_client

    if await get_client(database, name, without) is None:
        raise await no_such_client(database, name, without)
    asked = {"federation": name, "without": without, "from": first, "sha256": None}
    with reason_as_json(json, asked), telling(after_s=_SHOWN_AFTER_S) as tell:
        found = await counterfactual(database, await load_recipes(database, name), without, first, _rounds(tell))
    if out is not None:
        with out.open("wb") as file:  # by name `np.save` would add a suffix
            np.save(file, found.made)
    _tell_counterfactual(found, name, without, out, json=json)


def _tell_replayed(found: "Replayed", *, json: bool) -> None:
    row, stored, made = found.round, _digest(found.stored), _digest(found.made)
    what = f"Model {row.model_version} from the {row.n_updates} updates of round {row.number} ({row.aggregation})"
    told: tuple[str, ...] = (f"{what}: equal, SHA-256 {made}",)
    if found.differs:
        told = (
            f"{what} differs: {'; '.join(found.differs)}",
            f"SHA-256 of the stored weights {stored}, of the replayed {made}",
            "Another processor or version of NumPy can round otherwise",
        )
    result = {
        "federation": row.federation,
        "round": row.number,
        "model": row.model_version,
        "aggregation": row.aggregation,
        "n_updates": row.n_updates,
        "equal": not found.differs,
        "differs": found.differs,
        "sha256": {"stored": stored, "replayed": made},
    }
    report(json, result, *told)


def _tell_counterfactual(found: "Counterfactual", name: str, without: str, out: Path | None, *, json: bool) -> None:
    from foltr.core.unlearning.measures import cosine, relative_distance

    both = found.made.any() and found.newest.any()
    distance = relative_distance(found.made, found.newest) if found.newest.any() else None
    angle = cosine(found.made, found.newest) if both else None
    digest = _digest(found.made)
    named = (("relative distance", distance), ("cosine", angle))
    figures = ", ".join(f"{what} {value:.4g}" for what, value in named if value is not None)
    result = {
        "federation": name,
        "without": without,
        "from": found.first_round,
        "to": found.last_round,
        "n_rounds": found.n_rounds,
        "n_rounds_with_client": found.n_with_client,
        "n_rounds_without_model": found.n_without_model,
        "model": found.newest_version,
        "relative_distance": distance,
        "cosine": angle,
        "sha256": digest,
    }
    report(
        json,
        result,
        f"Rounds {found.first_round} to {found.last_round} of {name} without {without}, who had sent an update in "
        f"{found.n_with_client} of {found.n_rounds}:",
        f"{figures} to model {found.newest_version}; SHA-256 {digest}"
        if figures
        else f"model {found.newest_version} is all zeros; SHA-256 {digest}",
        f"{found.n_without_model} of the rounds make no model without it, and were passed over"
        if found.n_without_model
        else "",
        f"The others' updates were made on models that had learned from {without}: this is not the model that there "
        "would be without it",
        "" if out is None else f"wrote {len(found.made)} weights to {out}",
    )


def _rounds(tell: Callable[[str], None]) -> Callable[[int], None]:
    return lambda number: tell(f"round {number}")


def _digest(weights: NDArray[np.float32]) -> str:
    """SHA-256 of the weights as they are stored, little-endian float32, in hex."""
    from foltr.core.protocol.fields import pack_vector

    return hashlib.sha256(pack_vector(weights)).hexdigest()
