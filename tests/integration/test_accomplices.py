"""Attackers whom the defence has found gain nothing when an accomplice has itself forgotten."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from integration.deployment import DIM, FEDERATION, SQLITE, Deployment, client_name
from integration.users import in_each_round, in_use
from support.prepared_processes import with_defaults
from support.waiting import PATIENCE_S, until

from foltr.core.aggregation.fates import Fate
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.queries import list_contributions, list_events, list_rounds

N_CLIENTS, N_ATTACKERS, SYBIL = 11, 3, 3
ATTACKERS = {client_name(i) for i in range(N_ATTACKERS)}
# Seven are left while the attackers lie low, and the sybil is gone.
OPTIONS = ("--aggregation", "adaptive", "--min-clients", "7", "--max-clients", "11", "--min-time", "0.1")
VARIABLES = {
    "FOLTR_UNLEARN_EVERY_S": "0.2",
    **with_defaults(
        {
            "foltr.federator.job.UnlearningPolicy": {"swap_every_s": 0.0, "step_s": 2.0},
            "foltr.federator.job.MOST_MISSES": 50,  # no step is passed over because the machine was slow
        }
    ),
}
N_UPDATES_AFTER = 4


@dataclass
class Plot:
    """While attackers lie low they send nothing to rounds, and answer the steps of a job as everybody does."""

    lies_low: bool = False


@dataclass
class Learner:
    """What a device learns from any click: nearly what all others do, or the opposite of it."""

    i: int
    plot: Plot
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.i)

    @property
    def is_quiet(self) -> bool:
        return self.i < N_ATTACKERS and self.plot.lies_low

    def __call__(self, weights, _interaction, _training):
        sign = -1.0 if self.i < N_ATTACKERS and not self.plot.lies_low else 1.0
        return weights + sign * (1.0 + 0.2 * self.rng.normal(size=DIM))


async def click(client: EdgeClient, learner: Learner) -> None:
    """A user who clicks the first result, once a round."""

    def act() -> None:
        if not learner.is_quiet:
            client.record_clicks(client.rank(np.ones((2, DIM), np.float32)), [0])

    await in_each_round(client, act)


def devices_of(deployment: Deployment, plot: Plot):
    """All of its devices, clicking."""
    learners = [Learner(i, plot) for i in range(N_CLIENTS)]
    devices = (
        EdgeClient(one, store=":memory:", experiment=Experiment(learner=learner))
        for one, learner in zip(deployment.devices, learners, strict=True)
    )
    return in_use(devices, lambda client, i: click(client, learners[i]))


@SQLITE
async def test_three_excluded_attackers_stay_excluded_when_a_fourth_is_forgotten(deployment):
    """From the first round after the swap on, although the fourth was honest in all it sent, and they in the job."""
    plot = Plot()
    deployment.start_federator(10_000, *OPTIONS, **VARIABLES)
    async with devices_of(deployment, plot) as clients:
        await until(lambda: found(deployment), "the attackers were not found")
        plot.lies_low = True
        result = await clients[SYBIL].forget_me(timeout_s=PATIENCE_S)
        assert result.state == "forgotten", deployment.said()
        since = await first_round_after_the_swap(deployment)
        plot.lies_low = False

        async def have_sent() -> bool:
            counts = Counter(who for who, _ in await fates_of_attackers(deployment, since))
            return all(counts[name] >= N_UPDATES_AFTER for name in ATTACKERS)

        await until(have_sent, "the attackers are not in the rounds after the swap")
    fates = await fates_of_attackers(deployment, since)
    assert {fate for _, fate in fates} == {Fate.DROPPED}, fates
    # Rounds that went by since can be repeated, with what the rule had been given.
    rounds = await list_rounds(deployment.database, FEDERATION, limit=10_000)
    last = max(row.round for row in rounds if row.state == "completed")
    recipes = await load_recipes(deployment.database, FEDERATION)
    assert (await replay_round(deployment.database, recipes, last)).differs == ()


async def found(deployment: Deployment) -> bool:
    events = await list_events(deployment.database, FEDERATION, kind="defence_raised")
    return {event.client_id for event in events} >= ATTACKERS


async def first_round_after_the_swap(deployment: Deployment) -> int:
    (job,) = await list_jobs(deployment.database, FEDERATION)
    rounds = await list_rounds(deployment.database, FEDERATION, limit=10_000)
    return min(row.round for row in rounds if row.base_version is not None and row.base_version >= job.model_version)


async def fates_of_attackers(deployment: Deployment, since: int) -> list[tuple[str, Fate | None]]:
    """What became of what they sent to each completed round from one on."""
    rows = await list_contributions(deployment.database, FEDERATION)
    sent = [row for row in rows if row.round >= since and row.client_id in ATTACKERS]
    return [(row.client_id, row.fate) for row in sent if row.round_state == "completed"]
