"""A device ranks and records clicks; training and sending happen behind it.

    async with EdgeClient(credentials="device-7.json") as client:
        serp = client.rank(features)
        client.record_clicks(serp, [0, 3])

Clicks stay in the device's store, and so does what a method learns for this device alone. Once a round the device sends
one body (`foltr.core.protocol.updates`) and the number of interactions behind it. By the announced method the body is:

- FPDGD, FedProx, FPDGD with personal weights: the delta of the shared weights (`DenseDelta`);
- FPDGD with its paper's noise: the same, of clipped weights and with noise added;
- FedPer: the delta of the hidden layer (`PartDelta`), not of this device's output weights;
- FOLtR-ES: the seed of a perturbation and the mean of randomised responses under it (`EvolutionPair`);
- FedIPS, FedAvg: the delta of the ranker's weights (`DenseDelta`); if propensities are estimated, also that of the
  relevance function. Propensities, estimated or given, stay here.

If the federation has an anchor, a vote on the newest model, -1, 0 or 1, goes with it (`foltr.edge_client.votes.voter`).
Under its operator's policy a device sends only masked differences of weights (`MaskedVector`). When another client is
unlearned, a device without a policy sends a recomputed update from interactions that it kept
(`foltr.edge_client.training.relearning`).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn, Self

import numpy as np
import numpy.typing as npt

from foltr.core.errors import UsageError
from foltr.core.learning.rows import Rows
from foltr.core.operator.credentials import Credentials, read_credentials
from foltr.core.operator.erasure_request_file import request_file
from foltr.core.protocol.explorations import Exploration
from foltr.core.protocol.schemas import FeatureSchema
from foltr.edge_client.events import Observer
from foltr.edge_client.forgetting import ForgetResult
from foltr.edge_client.options import (
    Connection,
    DeviceOptions,
    Experiment,
    Privacy,
    Ranking,
    agreed_name,
    broker_address,
    check_groups,
    checked_exploration,
    checked_type,
    declared_schema,
)
from foltr.edge_client.runtime import Runtime
from foltr.edge_client.serp import Serp
from foltr.edge_client.store.store import DeviceStore

__all__ = ["EdgeClient", "ForgetResult", "Serp"]


class EdgeClient(Runtime):
    """One device of a federation, in the event loop that enters it.

    Args:
        credentials: what ``foltr device enrol`` wrote for this device, or its path: the device then signs everything it
            sends, and trusts only what the federator signed. Without them nothing is signed, and only a federator that
            accepts anyone (``--allow-unsigned``) listens.
        store: the device's SQLite file, opened when the client is entered; by default
            ``{federation}-{client_id}.sqlite`` in the working directory. ``":memory:"`` for a device that need not
            survive a restart.
        schema: of the application's features, or its JSON file (docs/features.md): `rank` scales them by it. If the
            federation has another one, nothing is learned and lists are in the order given; see `schema_difference`.
            None: the application scales its features itself, in the way the federation's devices agreed to.
        connection: which broker and federation, if the credentials do not say it, and how long to wait for the broker.
        ranking: how lists are made.
        privacy: what is kept and reported of the user's clicks.
        on_event: called with each event (`foltr.edge_client.events`), in the event loop; must not block.
        experiment: settings for experiments and tests.

    Raises:
        SettingsError: the credentials are wrong, or too little of the federation is known.
    """

    def __init__(
        self,
        credentials: str | Path | Credentials | None = None,
        *,
        store: str | Path | None = None,
        schema: FeatureSchema | str | Path | None = None,
        connection: Connection = Connection(),  # noqa: B008 (frozen)
        ranking: Ranking = Ranking(),  # noqa: B008
        privacy: Privacy = Privacy(),  # noqa: B008
        on_event: Observer | None = None,
        experiment: Experiment = Experiment(),  # noqa: B008
    ) -> None:
        groups = (connection, Connection), (ranking, Ranking), (privacy, Privacy), (experiment, Experiment)
        check_groups(on_event, *groups)
        beside = None
        if isinstance(credentials, str | Path):
            beside, credentials = request_file(Path(credentials)), read_credentials(Path(credentials), "device")
        elif credentials is not None:
            checked_type("credentials", credentials, Credentials, str, Path)
        named = (None, None) if credentials is None else (credentials.federation, credentials.name)
        options = DeviceOptions(
            agreed_name("federation", connection.federation, named[0]),
            agreed_name("client_id", connection.client_id, named[1]),
            credentials,
            declared_schema(schema),
            ranking,
            privacy,
            experiment,
        )
        address = broker_address(connection.broker, credentials)
        super().__init__(options, address, connection.give_up_after_s, beside, on_event)
        self._store_path = store if store is not None else f"{self.federation}-{self.client_id}.sqlite"
        self._opened_store: DeviceStore | None = None

    async def __aenter__(self) -> Self:
        if self._opened_store is not None:
            raise UsageError(f"client {self.client_id} was entered before; construct another EdgeClient")
        # Only now: a client that is never entered must not lock its store.
        self._opened_store = DeviceStore(
            self._store_path,
            client_id=self.client_id,
            federation=self.federation,
            max_interactions=self._options.privacy.max_interactions,
            max_kept=self._options.privacy.keep_interactions,
            max_recent=self._options.privacy.recent_lists,
        )
        try:
            self.open(self._opened_store)
            await self.start()
        except BaseException:
            self._opened_store.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop()
        finally:
            if self._opened_store is not None:
                self._opened_store.close()

    def __enter__(self) -> NoReturn:
        raise UsageError(
            "EdgeClient: use `async with EdgeClient(...)` in an event loop; without one, `with SearchRanker(...)`"
        )

    def __exit__(self, *_: object) -> None:
        """Does nothing: a plain ``with`` cannot enter it."""

    def rank(
        self,
        features: Rows,
        k: int | None = None,
        *,
        base: npt.ArrayLike | None = None,
        exploration: Exploration | str | None = None,
    ) -> Serp:
        """Rank candidate documents. Without candidates the list is empty, and recording it does nothing.

        The order is the application's until the user's clicks show that the model's is better (`Ranking.gate`). It
        stays so without a model, or with a model of another number of features: there is always a list to show.

        Args:
            features: (documents, features), finite: as the application computes them if the client got their schema,
                else normalised as the federation's devices agreed to. A data frame, or a list of dicts, is matched by
                the schema's names.
            k: how many to show; by default `serp_length`.
            base: (documents,) the application's scores, higher is better; None: the documents are given in its order,
                best first. Also breaks ties between the model's scores.
            exploration: of this list; by default the client's.

        Raises:
            DataError: not a finite matrix, or not the schema's features; or not as many numbers in ``base``. The
                message names the row and the column.
            SettingsError: the exploration is unknown.
        """
        return self.agent.rank(features, self.serp_length if k is None else k, base, checked_exploration(exploration))

    def record_clicks(self, serp: Serp | str, clicked: Iterable[int]) -> bool:
        """Record the user's clicks on a shown list: integer positions from 0, best first; no clicks are a record too.

        On disk when it returns. Clicks on the same list add up; those recorded before change nothing.

        Args:
            serp: the list, or its ``serp_id``, also after a restart (`Privacy.recent_lists`).

        Returns:
            False if new clicks came too late and are lost, because an update has the list (`Privacy.click_window_s`) or
            it was dropped (`Privacy.max_interactions`); also once this client is forgotten.

        Raises:
            DataError: a click is not a position of the list, or the list is another client's or too old.
        """
        self.check_thread()
        return self.agent.record_clicks(serp, clicked)

    def scores(self, features: Rows) -> npt.NDArray[np.float32]:
        """Return the (documents,) scores by `weights`, which `rank` orders by; zeros before the first model.

        Raises:
            DataError: as `rank` does.
        """
        return self.agent.scores(features)
