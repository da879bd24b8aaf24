"""``foltr rounds replay``: whether a stored model follows from the stored updates."""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from foltr.cli import options
from foltr.cli.database import reason_as_json, run_query
from foltr.cli.fields import argument
from foltr.cli.output import report
from foltr.cli.progress import telling
from foltr.core.protocol.fields import pack_vector

if TYPE_CHECKING:
    from foltr.federator.closing.replay import Replayed
    from foltr.storage.database import Database

_SHOWN_AFTER_S = 2.0


def replay(
    number: Annotated[int, argument("The round to aggregate again", metavar="ROUND", min=1, max=2**31 - 1)],
    db: options.Db = None,
    federation: options.Federation = None,
    keys: options.Keys = None,
    json: options.Json = False,
) -> None:
    """Aggregate a stored round again: exit code 0 if its model follows bit for bit from what is stored, else 1.

    Nothing is stored in the database.
    """

    async def query(database: "Database", name: str) -> None:
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


def _rounds(tell: Callable[[str], None]) -> Callable[[int], None]:
    return lambda number: tell(f"round {number}")


def _digest(weights: NDArray[np.float32]) -> str:
    """SHA-256 of the weights as they are stored, little-endian float32, in hex."""
    return hashlib.sha256(pack_vector(weights)).hexdigest()
