"""The hostile clients of a simulation: the first ones by number.

They take part like other clients: they issue queries, learn, and have random streams. With the attack ``clicks`` their
users click as the model `poison`. With any other they learn honestly and then, together, send something else. It
depends only on the updates, so it is the same with every runner.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.rule_spec import RuleSpec
from foltr.core.aggregation.vote_result import RoundTally
from foltr.core.evaluation.click_models import click_model
from foltr.core.methods.base import NO_MEMORY, Memory, NextModel
from foltr.core.protocol.fields import MAX_ABS_DELTA
from foltr_research.attacks.attacked_round import craft
from foltr_research.attacks.presence import is_there, name_in
from foltr_research.attacks.registry import AttackSpec
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.defence_record import NormProofs
from foltr_research.simulation.kept_updates import KeptUpdates, UpdateReceiver
from foltr_research.simulation.secure_sums import SecureAggregation


def with_poisoned_clicks(population: Population, n_attackers: int) -> Population:
    """Return the population with users of the first clients who click irrelevant documents (thesis, Section 5.2.2)."""
    clients = list(population.clients)
    for i, client in enumerate(clients[:n_attackers]):
        n_grades = len(client.click_models[0].click_probability)
        clients[i] = replace(client, click_models=(click_model("poison", n_grades),))
    return replace(population, clients=tuple(clients))


class AttackedAggregation(KeptUpdates):
    """An aggregation whose updates attackers replace before it sees them.

    Colluding attackers first need all their honest updates, so everything is kept until the round ends.

    Args:
        aggregation: the federator's. One of secure sums sees no update, so it refuses none.
        hostile: names of the attackers, whether or not they are in the round.
        n_expected: number of clients in the round.
        rule: the rule that the attackers assume.
        rng: of the attack.
        number: of the round, from 1.
    """

    def __init__(
        self,
        aggregation: UpdateReceiver,
        spec: AttackSpec,
        hostile: Collection[str],
        n_expected: int,
        rule: RuleSpec,
        rng: np.random.Generator,
        number: int,
    ) -> None:
        super().__init__(aggregation, n_expected)
        self._spec = spec
        self._hostile = hostile
        self._rule = rule
        self._rng = rng
        self._number = number
        self.refused: tuple[str, ...] = ()
        """After `finish`: names whose update exceeds what a message may hold, so that a federator refuses it."""

    @property
    def norm_proofs(self) -> NormProofs | None:
        """Return how many proofs were checked and failed, after `finish`. None without norm proofs."""
        return self._aggregation.norm_proofs if isinstance(self._aggregation, SecureAggregation) else None

    @property
    def tally(self) -> RoundTally | None:
        """Return the tally of the votes in secure sums, after `finish`. None without votes."""
        return self._aggregation.tally if isinstance(self._aggregation, SecureAggregation) else None

    @property
    def next_clip_norm(self) -> float | None:
        """Return C of the next round's secure sums, after `finish`. None without secure sums."""
        return self._aggregation.next_clip_norm if isinstance(self._aggregation, SecureAggregation) else None

    def finish(self, base: NDArray[np.float32], memory: Memory = NO_MEMORY) -> NextModel:
        rows, n_interactions, names = self._updates.all()
        hostile = np.array([name in self._hostile for name in names], np.bool_)
        refused = np.zeros(len(names), np.bool_)
        if not is_there(self._spec, self._number):
            rows, n_interactions = rows[~hostile], n_interactions[~hostile]
            names = [name for name in names if name not in self._hostile]
            refused = refused[~hostile]
        elif hostile.any():
            honest, model = rows.astype(np.float64), base[self._aggregation.covered]
            own, others = honest[hostile], honest[~hostile]
            crafted = craft(self._spec, own, others, len(names), self._rule, self._rng, model, self._number)
            rows[hostile] = crafted
            names = [name_in(self._spec, name, self._number) if name in self._hostile else name for name in names]
            if not isinstance(self._aggregation, SecureAggregation):
                within = np.abs(crafted).max(axis=1, initial=0.0) <= MAX_ABS_DELTA
                refused[hostile] = ~within  # negated so that NaN is refused, too
        self.refused = tuple(names[i] for i in np.flatnonzero(refused).tolist())
        if refused.all():
            return NextModel(base.copy(), memory)
        # The federator adds updates in the order of the senders' names.
        order = sorted(np.flatnonzero(~refused).tolist(), key=names.__getitem__)
        self._aggregation.add_rows(rows[order], n_interactions[order].astype(np.int64), [names[i] for i in order])
        return self._aggregation.finish(base, memory)
