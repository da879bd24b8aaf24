"""Learners that a simulation trains round by round, evaluates, stores and restores."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.client_records import with_progress_of
from foltr.core.aggregation.round_aggregation import TooFewUpdatesError
from foltr.core.aggregation.rule_spec import MEAN, RuleSpec
from foltr.core.aggregation.vote_result import Verdict
from foltr.core.learning.comparison import Opinion
from foltr.core.methods.aggregations import DeltaAggregation, is_plain_mean
from foltr.core.methods.base import Aggregation, Memory, NextModel
from foltr.core.methods.registry import Ranker, make_aggregation
from foltr.core.protocol.trainings import Training
from foltr_research.attacks.attacked_round import attack_rng
from foltr_research.attacks.presence import is_there, name_in
from foltr_research.attacks.registry import CLICKS, AttackSpec
from foltr_research.simulation.clients.attackers import AttackedAggregation
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.clients.voters import Voters
from foltr_research.simulation.defence_record import Decision, RoundDefence
from foltr_research.simulation.kept_updates import UpdateReceiver
from foltr_research.simulation.runners import Experience, Runner, State
from foltr_research.simulation.secure_sums import SecureAggregation, SecureSums

_TAKEN_BACK = "the model was taken back"


class Learner(Protocol):
    """A federation, or one of the references of `foltr_research.simulation.centralised`."""

    @property
    def weights(self) -> NDArray[np.float32]:
        """(n_weights,) of the shared ranker."""

    def round(self, number: int) -> Experience:
        """Learn from one more round's interactions, number from 1."""

    def ranker_of(self, client: int) -> NDArray[np.floating]:
        """(n_weights,) of the ranker that one client would use now."""

    def state(self) -> State:
        """Return all that `round` changes, except for the clients' streams."""

    def restore(self, state: State) -> None:
        """Continue from a state."""


@dataclass(frozen=True, eq=False)
class Defence:
    """How a federation aggregates updates, who is hostile, and who votes.

    Attributes:
        rule: the aggregation rule.
        attack: of the hostile clients; None and ``clicks`` change no updates.
        n_attackers: number of hostile clients, the first ones.
        secure: settings of secure sums; None: the federator sees every update.
        voters: the runner's clients that vote on each model; None without votes.
    """

    rule: RuleSpec = MEAN
    attack: AttackSpec | None = None
    n_attackers: int = 0
    secure: SecureSums | None = None
    voters: Voters | None = None


class Federation:
    """The federator's side of a simulated round: who takes part, the aggregation, the next model.

    Args:
        first: (n_weights + n_auxiliary,) the first model.
        participants: of each round; None for all clients.
        defence: default: the plain mean of honest clients' updates.
    """

    def __init__(
        self,
        population: Population,
        runner: Runner,
        training: Training,
        ranker: Ranker,
        first: NDArray[np.float32],
        seed: int,
        participants: int | None,
        defence: Defence = Defence(),
    ) -> None:
        self._runner = runner
        self._training = training
        self._ranker = ranker
        self._model = first
        self._memory = Memory()
        self._voters = defence.voters
        self._memory_of_anchor = self._memory
        self._seed = seed
        self._participants = participants
        self._rule = defence.rule
        attack = defence.attack
        self._attack = None if attack is None or attack.name == CLICKS else attack
        names = [client.name for client in population.clients]
        self._names = names
        self._hostile = frozenset(names[: defence.n_attackers])
        # The federator adds updates in the order of the clients' names, and "device-1000" is before "device-101".
        self._in_order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
        self._secure = secure = defence.secure
        turns = [1 if secure is None else secure.first_turn(names[i]) for i in self._in_order.tolist()]
        self._first_turns = np.array(turns, np.int64)

    @property
    def weights(self) -> NDArray[np.float32]:
        return self._model[: self._ranker.n_weights]

    def round(self, number: int) -> Experience:
        clients = self._participants_of(number)
        aggregation = self._aggregation(number, clients)
        # The first model is version 0, and every round makes one.
        experience = self._runner.run(self._model, number - 1, clients, aggregation)
        following, abandoned = None, None
        if self._secure is not None:
            # Votes in secure sums are known only after these are finished.
            following, abandoned = self._finish(aggregation)
            self._secure = _with_next_clip_norm(self._secure, aggregation)
        decision = self._decision(number, clients, aggregation, is_kept=abandoned is None)
        proofs = None
        if isinstance(aggregation, AttackedAggregation | SecureAggregation):
            proofs = aggregation.norm_proofs
        if self._voters is not None and decision is not None and decision.verdict is Verdict.TAKE_BACK:
            self._take_back(self._voters, number)
            of_round = RoundDefence(abandoned=_TAKEN_BACK, norm_proofs=proofs, decision=decision)
            return replace(experience, defence=of_round)
        if following is None:
            following, abandoned = self._finish(aggregation)
        if self._voters is not None and decision is not None:
            # The anchor becomes the model that was voted on. Nobody has compared this round's new model yet.
            self._voters.restart(self._model)
            self._memory_of_anchor = self._memory
        self._model, self._memory = following.weights, following.memory
        refused = aggregation.refused if isinstance(aggregation, AttackedAggregation) else ()
        return replace(experience, defence=RoundDefence(following.report, refused, abandoned, proofs, decision))

    def _finish(self, aggregation: Aggregation) -> tuple[NextModel, str | None]:
        """Return the next model, or the present one and why no other was made."""
        try:
            return aggregation.finish(self._model, self._memory), None
        except TooFewUpdatesError as error:
            return NextModel(self._model, self._memory), str(error)

    def _decision(
        self, number: int, clients: NDArray[np.int64], aggregation: Aggregation, *, is_kept: bool
    ) -> Decision | None:
        """Return the votes' decision in a round. None without a change or without votes.

        Args:
            is_kept: whether the votes in its secure sums count in later rounds.
        """
        if self._voters is None:
            return None
        if self._secure is None:
            result = self._voters.take_votes(number, self._senders(number, clients))
        elif isinstance(aggregation, AttackedAggregation | SecureAggregation) and aggregation.tally is not None:
            result = self._voters.take_tally(aggregation.tally, is_kept=is_kept)
        else:
            return None
        nothing = result.verdict is Verdict.KEEP or not self._voters.compares(self._model)
        return None if nothing else Decision(result.verdict, result)

    def _opinions(self, number: int, clients: NDArray[np.int64]) -> dict[str, Opinion]:
        """Return the votes of a round's clients, by their names in it."""
        return {} if self._voters is None else self._voters.opinions(self._senders(number, clients))

    def _senders(self, number: int, clients: NDArray[np.int64]) -> dict[int, str]:
        """Return the clients that send an update in a round, with their names."""
        senders = {client: self._names[client] for client in clients.tolist()}
        if self._attack is not None:
            there = is_there(self._attack, number)
            senders = {
                client: name_in(self._attack, name, number) if name in self._hostile else name
                for client, name in senders.items()
                if there or name not in self._hostile
            }
        return senders

    def _take_back(self, voters: Voters, number: int) -> None:
        """Replace the model by the anchor. The clients' updates remain as evidence."""
        self._model = voters.anchor
        evidence, path = self._memory.defence, self._memory_of_anchor
        defence = None if evidence is None else with_progress_of(evidence, path.defence)
        self._memory = Memory(path.optimiser, defence)
        voters.take_back(number)

    def _participants_of(self, number: int) -> NDArray[np.int64]:
        if self._secure is not None:
            has_turn: NDArray[np.bool_] = (number - self._first_turns) % self._secure.period == 0
            return self._in_order[has_turn]
        chosen = participants_of(self._seed, number, len(self._in_order), self._participants)
        return self._in_order if chosen is None else self._in_order[chosen]

    def _aggregation(self, number: int, clients: NDArray[np.int64]) -> Aggregation:
        rng, n_expected = None, len(clients)
        if not is_plain_mean(self._rule):
            rng = np.random.default_rng(np.random.SeedSequence([self._seed, number, *b"aggregation"]))
        aggregation = make_aggregation(self._training, self._ranker, self._rule, n_expected=n_expected, rng=rng)
        if not isinstance(aggregation, DeltaAggregation):
            return aggregation
        given: UpdateReceiver = aggregation
        if self._secure is not None:
            unclipped: frozenset[str] = frozenset()
            if self._attack is not None:
                unclipped = frozenset(name_in(self._attack, name, number) for name in self._hostile)
            votes = partial(self._opinions, number, clients)
            given = SecureAggregation(aggregation, self._secure, number, n_expected, unclipped, votes)
        if self._attack is None:
            return given
        drawn = attack_rng(self._seed, number)
        return AttackedAggregation(given, self._attack, self._hostile, n_expected, self._rule, drawn, number)

    def ranker_of(self, client: int) -> NDArray[np.floating]:
        return self._runner.ranker_of(client, self._model)

    def state(self) -> State:
        of_anchor = self._memory_of_anchor
        kept = {"optimiser": self._memory.optimiser, "defence": self._memory.defence}
        if self._voters is not None:
            kept |= {"anchor_optimiser": of_anchor.optimiser, "anchor_defence": of_anchor.defence}
        memory = {name: np.frombuffer(value or b"", np.uint8) for name, value in kept.items()}
        voters = {} if self._voters is None else self._voters.state()
        clip_norm = {}
        if self._secure is not None and self._secure.clip_quantile is not None:
            clip_norm = {"clip_norm": np.array([self._secure.clip_norm])}
        return {"model": self._model, **memory, **clip_norm, **voters, **self._runner.state()}

    def restore(self, state: State) -> None:
        self._model = state["model"].astype(np.float32)
        self._memory = Memory(state["optimiser"].tobytes() or None, state["defence"].tobytes() or None)
        if self._secure is not None and "clip_norm" in state:
            self._secure = replace(self._secure, clip_norm=float(state["clip_norm"][0]))
        if self._voters is not None:
            self._voters.restore(state)
            of_anchor = (state["anchor_optimiser"].tobytes() or None, state["anchor_defence"].tobytes() or None)
            self._memory_of_anchor = Memory(*of_anchor)
        self._runner.restore(state)


def _with_next_clip_norm(secure: SecureSums, aggregation: Aggregation) -> SecureSums:
    """Return the settings of the next round's secure sums."""
    norm = aggregation.next_clip_norm if isinstance(aggregation, AttackedAggregation | SecureAggregation) else None
    return secure if norm is None or norm == secure.clip_norm else replace(secure, clip_norm=norm)


def participants_of(seed: int, number: int, n_clients: int, participants: int | None) -> NDArray[np.int64] | None:
    """Draw the participants of a round, ascending; None for all. Each round has a separate stream."""
    if participants is None or participants == n_clients:
        return None
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, *b"participants"]))
    return np.sort(rng.choice(n_clients, size=participants, replace=False))
