"""Attackers among the devices of one process: they pool what they learned and send crafted updates.

Each learns like an honest device and hands its update to `foltr_research.attacks` through
`foltr.edge_client.contribution.Alteration`. It waits a limited time for the others of its round, then sends its crafted
part. With full knowledge the honest devices of the process are overheard, too. The simulator crafts from the same
updates in the same order with the same draws, so its attackers send identical bits.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import structlog
from numpy.typing import NDArray

from foltr.cli.fleet.fleet import Fleet, FleetUser
from foltr.core.aggregation.rule_spec import RuleSpec
from foltr.core.errors import SettingsError, first_cause
from foltr.core.evaluation.click_models import click_model
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.client_selection import is_selected, round_seed
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.updates import DenseDelta, ModelUpdate, PartDelta, UpdateBody
from foltr.edge_client.contribution import Alteration
from foltr_research.attacks.attacked_round import attack_rng, craft
from foltr_research.attacks.registry import CLICKS, AttackSpec, check_attack

log = structlog.get_logger(__name__)

_PATIENCE_S = 10.0
_MEETINGS_KEPT = 4


async def run_attacked(fleet: Fleet, spec: AttackSpec, n_attackers: int, rule: RuleSpec | None = None) -> None:
    """Run a fleet whose first devices attack.

    Args:
        rule: the aggregation rule that they assume; None: they assume none.

    Raises:
        SettingsError: the attack does not apply to the federation's method.
    """
    collusion = Collusion(spec, tuple(fleet.stores), n_attackers, fleet.seed, rule)
    if spec.name == CLICKS:
        fleet.users = {**fleet.users, **{name: _poisoned(fleet.user(name)) for name in collusion.attackers}}
    altered = {name: collusion.alteration_of(name) for name in fleet.stores}
    fleet.alterations = {name: one for name, one in altered.items() if one is not None}
    try:
        async with asyncio.TaskGroup() as group:
            failing = group.create_task(collusion.fails())
            await group.create_task(fleet.run())
            failing.cancel()
    except BaseExceptionGroup as failures:
        raise first_cause(failures) from failures


def _poisoned(user: FleetUser) -> FleetUser:
    """Return a user who clicks irrelevant documents (thesis, Section 5.2.2)."""
    n_grades = len(user.click_models[0].click_probability)
    return replace(user, click_models=(click_model("poison", n_grades),))


@dataclass
class _Meeting:
    """The state of one round, shared by the devices of the process.

    Attributes:
        n: number of updates that the attackers expect.
        missing: names of those who have not handed over what they learned.
        learned: (d,) float32 by name.
        crafted: (d,) float32 by name, once the wait is over.
        complete: set when none is missing.
    """

    n: int
    missing: set[str]
    learned: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    crafted: dict[str, NDArray[np.float32]] | None = None
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def hand_over(self, name: str, values: NDArray[np.float32]) -> None:
        self.learned[name] = values
        self.missing.discard(name)
        if not self.missing:
            self.complete.set()


class Collusion:
    """The attackers of one process.

    Args:
        names: of all devices of the process.
        n_attackers: the first so many of them attack.
        seed: of the experiment.
        rule: the aggregation rule that they assume; None: they assume none.
        patience_s: how long they wait for each other in a round.
    """

    def __init__(
        self,
        spec: AttackSpec,
        names: Sequence[str],
        n_attackers: int,
        seed: int,
        rule: RuleSpec | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self.spec = spec
        self.attackers = frozenset(names[:n_attackers])
        self._names = tuple(names)
        self._seed = seed
        self._rule = rule
        self._patience_s = patience_s
        self._meetings: dict[tuple[int, int], _Meeting] = {}
        self._failed = asyncio.Event()
        self._failure: SettingsError | None = None

    async def fails(self) -> None:
        """Wait until the attack turns out not to apply to the federation's method, then raise SettingsError."""
        await self._failed.wait()
        if self._failure is not None:
            raise self._failure

    def alteration_of(self, name: str) -> Alteration | None:
        """Return how a device alters its updates. None for an honest device that is not overheard."""
        if self.spec.name == CLICKS:
            return None
        if name in self.attackers:
            return self._attack
        return self._record_honest_update if self.spec.knowledge == "full" else None

    async def _attack(self, update: ModelUpdate, round_: RoundAnnouncement) -> UpdateBody:
        meeting, body = self._met(update, round_), update.body
        try:
            async with asyncio.timeout(self._patience_s):
                await meeting.complete.wait()
        except TimeoutError:
            if meeting.crafted is None:
                log.warning("attackers_incomplete", round=update.round, missing=sorted(meeting.missing))
        if meeting.crafted is None:
            meeting.crafted = self._craft(meeting, sorted(self.attackers & meeting.learned.keys()), update.base_version)
        if update.client_id not in meeting.crafted:  # too late for the others: attack alone
            meeting.crafted |= self._craft(meeting, [update.client_id], update.base_version)
        return body.model_copy(update={"values": pack_vector(meeting.crafted[update.client_id])})

    async def _record_honest_update(self, update: ModelUpdate, round_: RoundAnnouncement) -> UpdateBody:
        self._met(update, round_)
        return update.body

    def _met(self, update: ModelUpdate, round_: RoundAnnouncement) -> _Meeting:
        """Return the round's meeting after adding this update."""
        try:
            check_attack(self.spec, round_.training)
        except SettingsError as error:
            self._failure = error
            self._failed.set()
            raise
        if not isinstance(update.body, DenseDelta | PartDelta):
            raise TypeError(f"an update of kind {update.body.kind} passed the check")
        key = (update.round, update.base_version)
        if key not in self._meetings:
            self._meetings[key] = self._meeting(round_)
            for oldest in sorted(self._meetings)[:-_MEETINGS_KEPT]:
                del self._meetings[oldest]
        meeting = self._meetings[key]
        meeting.hand_over(update.client_id, unpack_vector(update.body.values))
        return meeting

    def _meeting(self, round_: RoundAnnouncement) -> _Meeting:
        names, asked = self._names, round_.selection
        if asked is not None:
            seed = round_seed(asked.first_seed, round_.round)
            names = tuple(name for name in names if is_selected(seed, asked.cutoff, name))
        awaited = set(names) if self.spec.knowledge == "full" else self.attackers & set(names)
        return _Meeting(len(self._names) if asked is None else asked.n_selected, set(awaited))

    def _craft(self, meeting: _Meeting, attackers: Sequence[str], version: int) -> dict[str, NDArray[np.float32]]:
        honest = sorted(meeting.learned.keys() - self.attackers)
        n_features = len(meeting.learned[attackers[0]])
        own, others = (
            np.array([meeting.learned[name] for name in names], np.float64).reshape(-1, n_features)
            for names in (attackers, honest)
        )
        hidden = others if self.spec.knowledge == "full" else None
        n = max(meeting.n, len(meeting.learned))
        number = version + 1
        drawn = attack_rng(self._seed, number)
        rows = craft(self.spec, own, hidden, n, self._rule, drawn, round_number=number)
        return dict(zip(attackers, rows, strict=True))
