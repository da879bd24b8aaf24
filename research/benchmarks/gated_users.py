"""Users of a federation whose devices have gates: what the lists they are shown are expected to lose or gain.

A search's gain is the expected reciprocal rank of the wanted document over all lists that may be shown, minus that in
the base's list. It is computed exactly from the gate's state, so blocks of a hundred searches have no noise of the
draws, only that of users and their histories.

Devices learn by FPDGD with a federation's defaults, in rounds of five searches; the next model is the mean of theirs.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from known_searches import K, KnownQuery, KnownSearch, reciprocal
from numpy.typing import NDArray

from foltr.core.evaluation.click_models import ClickModel, simulate_clicks
from foltr.core.learning.credits import OPENS_AT, Credits, pooled
from foltr.core.learning.display import exchange_probabilities
from foltr.core.learning.gate import Gate, Source, credit_of, source_of_next, with_list
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.linear import rank_by_score
from foltr.core.methods.base import DeviceContext, MethodDevice
from foltr.core.methods.lists import list_from
from foltr.core.methods.registry import make_device, usual_learning_rate
from foltr.core.protocol.explorations import SAFE
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining

SEARCHES = 5
"""Of each user in a round."""


@dataclass(eq=False)
class User:
    """A user and the device's gate.

    Attributes:
        gains: of each search, expected.
        of_model: of each search, what the model's own list would gain.
        opened_after: searches until the gate opened first; None if it is closed still.
    """

    gate: Gate = field(default_factory=Gate)
    credits: Credits = field(default_factory=Credits)
    gains: list[float] = field(default_factory=list)
    of_model: list[float] = field(default_factory=list)
    opened_after: int | None = None


class GatedFederation:
    """A federation of such users.

    Args:
        shares: whether gates use the credits of all users.
    """

    def __init__(
        self, search: KnownSearch, clicks: ClickModel, n_users: int, seed: int, *, shares: bool = True
    ) -> None:
        self._search, self._clicks, self._shares = search, clicks, shares
        self._rng = np.random.default_rng(seed)
        self._ranker = LinearRankerSpec(n_features=search.n_features)
        self._training = PdgdTraining(learning_rate=usual_learning_rate("fpdgd", "linear", SAFE) or 0.1)
        self.weights = np.zeros(search.n_features, np.float32)
        self.users = [User() for _ in range(n_users)]
        self.n_rounds = 0

    def join(self, n: int) -> list[User]:
        """Add users without any clicks, and return them."""
        new = [User() for _ in range(n)]
        self.users.extend(new)
        return new

    def run(self, n_rounds: int) -> None:
        for _ in range(n_rounds):
            self._round()

    def lists_until_closed(self, most: int = 200) -> list[int]:
        """Turn the model upside down; return how many lists of it each user with an open gate is shown.

        Nothing is learned meanwhile, and the gates are left as they were.
        """
        counts = []
        for number, user in enumerate(self.users):
            gate, n = user.gate, 0
            while gate.is_open and n < most:
                query = self._search.query(number, self._rng)
                source = source_of_next(gate, self._rng)
                scores = -(query.features @ self.weights)
                gate, _ = self._shown(gate, source, query, scores)
                n += 1
            if user.gate.is_open:
                counts.append(n)
        return counts

    def lists_to_know(self, n: int = 4000) -> float:
        """Return how many interleaved lists any bet needs, expected, to grow a hundredfold on the present model.

        If the model is no better a credit of each weight is as likely for it as for the base. So no bet's logarithm
        grows faster, for each list, than the sum over weights of how often such a credit comes, times the divergence
        of how often it is the model's from one half (Kelly, 1956). With Wald's equation that bounds the mean number of
        lists (Shafer, "Testing by Betting", JRSS A 2021). Infinite if the credits speak for the base.
        """
        found = []
        for number in range(n):
            query = self._search.query(number % len(self.users), self._rng)
            scores = (query.features @ self.weights).astype(np.float32)
            found.append(self._shown(Gate(), Source.INTERLEAVED, query, scores)[1].credit)
        credited = np.array(found)
        if credited.sum() <= 0.0:
            return math.inf
        return math.log(OPENS_AT) / sum(_information(credited, weight) for weight in set(np.abs(credited)) - {0.0})

    def lists_to_notice(self, n: int = 2000, n_between: float = 300.0) -> float:
        """Return how many lists any rule needs, expected, to notice that the model was turned upside down.

        By their rewards alone, if it may be wrong once in so many lists: the logarithm of these over the divergence of
        the rewards upside down from those before (Lorden, "Procedures for Reacting to a Change in Distribution",
        Annals of Mathematical Statistics 1971).
        """
        shares = []
        for sign in (-1.0, 1.0):
            found = []
            for number in range(n):
                query = self._search.query(number % len(self.users), self._rng)
                scores = (sign * (query.features @ self.weights)).astype(np.float32)
                interaction = self._shown(Gate(), Source.MODEL, query, scores)[1].interaction
                found.append(int(interaction.clicks.argmax()) if interaction.clicks.any() else K)
            # Half a list more of each kind, so that one that was not seen is not impossible.
            shares.append((np.bincount(found, minlength=K + 1) + 0.5) / (n + (K + 1) / 2))
        after, before = shares
        return math.log(n_between) / float((after * np.log(after / before)).sum())

    def _round(self) -> None:
        shared = self._pooled() if self._shares else Credits()
        learned = []
        for number, user in enumerate(self.users):
            user.gate = replace(user.gate, shared=shared)
            context = DeviceContext(number, shows_base=True)
            device = make_device(self._training, self._ranker, self.weights, self.n_rounds, context)
            for _ in range(SEARCHES):
                self._search_once(number, user, device)
            learned.append(device.weights)
        self.weights = np.mean(learned, axis=0).astype(np.float32)
        self.n_rounds += 1

    def _pooled(self) -> Credits:
        return pooled(*np.array([user.credits for user in self.users], np.float64).T)

    def _search_once(self, number: int, user: User, device: MethodDevice) -> None:
        query = self._search.query(number, self._rng)
        scores, _ = device.scores(query.features, exploring=True)
        has_model = bool(device.weights.any())
        gain, of_model = expected_gains(user.gate, query, scores if has_model else None)
        user.gains.append(gain)
        user.of_model.append(of_model)
        source = source_of_next(user.gate, self._rng) if has_model else Source.BASE
        user.gate, interaction = self._shown(user.gate, source, query, scores)
        user.credits = Credits(user.credits.total + interaction.credit, user.credits.squares + interaction.credit**2)
        if user.gate.is_open and user.opened_after is None:
            user.opened_after = len(user.gains)
        device.learn(interaction.interaction, self._rng)

    def _shown(
        self, gate: Gate, source: Source, query: KnownQuery, scores: NDArray[np.float32]
    ) -> "tuple[Gate, _Shown]":
        listed = list_from(source, SAFE, scores, query.base, K, self._rng)
        ranking = listed.shown.ranking
        clicks = simulate_clicks(self._clicks, (ranking == query.wanted).astype(np.int16), self._rng)
        interaction = Interaction(
            1, query.features, ranking, clicks, reversals=listed.shown.reversals, source=listed.source
        )
        after = with_list(gate, listed.source, clicks, listed.to_credit)
        return after, _Shown(interaction, credit_of(clicks, listed.to_credit))


def _information(credited: NDArray[np.float64], weight: float) -> float:
    """Return the nats that credits of one weight give for each list; none if they speak for the base."""
    of_weight = credited[np.abs(credited) == weight]
    share = float((of_weight > 0.0).mean())
    if share <= 0.5:
        return 0.0
    entropy = -sum(each * math.log(each) for each in (share, 1.0 - share) if each)
    return len(of_weight) / len(credited) * (math.log(2.0) - entropy)


@dataclass(frozen=True, eq=False)
class _Shown:
    interaction: Interaction
    credit: float


def expected_gains(gate: Gate, query: KnownQuery, scores: NDArray[np.float32] | None) -> tuple[float, float]:
    """Return what the next list gains in reciprocal rank over the base's, expected, and what the model's best would.

    Args:
        scores: (docs,) of the model, in the base's order; None without a model.
    """
    k = min(K, len(query.features))
    of_base = reciprocal(query.wanted)
    if scores is None:
        return exchanged_reciprocal(query.wanted, k) - of_base, 0.0
    model = rank_by_score(scores, K)
    in_model = np.flatnonzero(model == query.wanted)
    position = int(in_model[0]) if len(in_model) else K
    share = gate.share_interleaved
    usual = exchanged_reciprocal(position if gate.is_open else query.wanted, k)
    mixed = interleaved_reciprocal(model.tolist(), list(range(k)), query.wanted)
    return share * mixed + (1 - share) * usual - of_base, reciprocal(position) - of_base


def exchanged_reciprocal(position: int, k: int) -> float:
    """Return the expected reciprocal rank of the document at a position, from 0, if neighbours are exchanged."""
    if position >= k:
        return 0.0
    likely, at = exchange_probabilities(k, SAFE.probability), reciprocal(position)
    lower = (reciprocal(position + 1) - at) * likely[position] / 2 if position + 1 < k else 0.0
    upper = (reciprocal(position - 1) - at) * likely[position - 1] / 2 if position else 0.0
    return float(at + lower + upper)


def interleaved_reciprocal(model: list[int], base: list[int], wanted: int) -> float:
    """Return the expected reciprocal rank of a document in the lists that team draft makes of two, over all coins."""
    k = len(base)

    def after(taken: frozenset[int]) -> float:
        position, total = len(taken), 0.0
        if position >= k:
            return 0.0
        for first, second in ((model, base), (base, model)):
            upper = next(document for document in first if document not in taken)
            if upper == wanted:
                total += 1.0 / (position + 1)
            elif position + 1 < k:
                now = taken | {upper}
                lower = next(document for document in second if document not in now)
                total += 1.0 / (position + 2) if lower == wanted else after(now | {lower})
        return total / 2

    return after(frozenset()) if wanted in model or wanted in base else 0.0
