"""``foltr demo-secure``: only noised sums are visible; a helper is killed, devices vanish, and others are hostile."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from foltr.cli.demo import Demo
from foltr.cli.fleet.fleet import Fleet
from foltr.cli.settings import Settings
from foltr.core.errors import FoltrError, SettingsError
from foltr.core.methods.registry import n_auxiliary, parameters_of
from foltr.core.operator.policy_terms import costs_in_words
from foltr.core.protocol.policies import Policy
from foltr.edge_client.options import Privacy
from foltr.edge_client.sums.privacy_limits import PrivacyLimits
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.secure_terms import SecureSettings
from foltr.federator.service import FederatorService
from foltr.storage.database import Database
from foltr.storage.queries import count_bodies
from foltr.storage.rounds import latest_round
from foltr_research.cli.demos.helper_process import HelperProcess, running
from foltr_research.cli.demos.hostile_devices import TIMES, count_norm_proofs, lying
from foltr_research.cli.demos.progress import always, say, watch
from foltr_research.cli.demos.secure_setup import Parties, Promise, set_up
from foltr_research.simulation.clients.population import client_name, iid_population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.federated import run

if TYPE_CHECKING:
    from foltr.broker.address import BrokerAddress
    from foltr.core.data.sources import LoadedData
    from foltr.core.methods.registry import Ranker
    from foltr.core.protocol.trainings import Training

N_VANISHING: Final = 5
"""Number of devices that take part in half of the rounds and then vanish."""
_LEAST_CLIENTS = 2 * N_VANISHING
# The others have sent by then. Vanished devices are not waited for.
_MIN_TIME_S, _MAX_TIME_S = 1.0, 30.0
_HELPER_DEADLINE_S = 20.0
_AWAY_S = 3.0
_GIVE_UP_S = 30.0
_POLL_S = 0.2


class SecureDemo(Demo):
    """A `Demo` with secure sums: two helper processes, one of which is killed, and devices that vanish.

    Args:
        n_hostile: the first so many devices send vectors that are far too long, with forged proofs.
    """

    def __init__(
        self,
        settings: Settings,
        n_clients: int,
        n_rounds: int,
        broker_url: str | None,
        promise: Promise,
        n_hostile: int = 0,
    ) -> None:
        if n_clients < _LEAST_CLIENTS:
            raise SettingsError(
                f"clients: {n_clients}; at least {_LEAST_CLIENTS} are needed, because {N_VANISHING} of them vanish"
            )
        if n_hostile and promise.norm_proof == "none":
            raise SettingsError(
                "hostile: hostile devices are only found by norm proofs, and clients that add noise have none"
            )
        if 2 * n_hostile >= n_clients - N_VANISHING:
            raise SettingsError(
                f"hostile: {n_hostile} of the {n_clients - N_VANISHING} devices that do not vanish; fewer than half "
                "may be hostile, because the verifiers may lie if most proofs fail"
            )
        super().__init__(settings, n_clients, n_rounds, broker_url)
        self._promise = promise
        self._n_hostile = n_hostile
        self._policy: Policy | None = None
        self._without_noise: dict[str, float] = {}

    async def _federate(
        self,
        data: "LoadedData",
        training: "Training",
        ranker: "Ranker",
        database: Database,
        address: "BrokerAddress",
    ) -> None:
        simulating = asyncio.to_thread(_without_noise, self._settings, training, data, self._n_clients, self._n_rounds)
        self._without_noise = await watch(simulating, always("simulating the same without noise"))
        names = [client_name(i) for i in range(1, self._n_clients + 1)]
        with tempfile.TemporaryDirectory(prefix="foltr-demo-") as folder:
            parties = set_up(
                Path(folder),
                self._settings.federation,
                address,
                self._promise,
                names=names,
                n_staying=self._n_clients - N_VANISHING - self._n_hostile,
                n_rounds=self._n_rounds,
                n_interactions=self._settings.learning.interactions,
                dim=ranker.n_weights + n_auxiliary(training, ranker),
            )
            self._policy = parties.policy.policy
            for line in costs_in_words(self._policy, self._n_clients):
                say(f"  {line}")
            await self._take_part(parties, data, training, ranker, database, address)

    async def _take_part(
        self,
        parties: Parties,
        data: "LoadedData",
        training: "Training",
        ranker: "Ranker",
        database: Database,
        address: "BrokerAddress",
    ) -> None:
        plan = self._plan(parties, data, training, ranker)
        service = FederatorService(plan, database, address, key=parties.federator_key, give_up_after_s=_GIVE_UP_S)
        names = list(parties.devices)
        hostile = {name: lying(parties.policy, parties.devices[name].key) for name in names[: self._n_hostile]}
        if hostile:
            say(f"  {len(hostile)} devices send {TIMES} times what the bound allows, with forged proofs of their norm")
        staying = self._fleet(parties, data, names[:-N_VANISHING])
        staying.alterations = hostile
        vanishing = self._fleet(parties, data, names[-N_VANISHING:], n_rounds=max(1, self._n_rounds // 2))
        unlucky, *others = parties.helpers
        async with running(parties.helpers), asyncio.TaskGroup() as group:
            federating = group.create_task(service.run())
            group.create_task(staying.run())
            group.create_task(vanishing.run())
            until_the_end = [group.create_task(self._kill_one(unlucky, database))]
            until_the_end += [group.create_task(_must_go_on(helper)) for helper in others]
            await self._show_progress(federating, data, ranker, database)
            for task in until_the_end:
                task.cancel()

    def _plan(self, parties: Parties, data: "LoadedData", training: "Training", ranker: "Ranker") -> FederationPlan:
        return FederationPlan(
            self._settings.federation,
            data.train.n_features,
            # Hostile devices are removed after the round has closed, and enough others must remain.
            RoundPolicy(parties.policy.policy.n_min + self._n_hostile, self._n_clients, _MIN_TIME_S, _MAX_TIME_S),
            training,
            chosen_ranker=ranker,
            seed=self._settings.devices.seed,
            stop_after_round=self._n_rounds,
            enrolment_key=parties.enrolment_key,
            # The noise accounts for both.
            anchor=parties.policy.policy.votes is not None,
            evaluation=parties.policy.policy.evaluation is not None,
            secure=SecureSettings(
                parties.policy, helper_deadline_s=_HELPER_DEADLINE_S, sealing_keys=(parties.sealing_key,)
            ),
        )

    def _fleet(self, parties: Parties, data: "LoadedData", names: Sequence[str], n_rounds: int | None = None) -> Fleet:
        settings = self._settings
        return Fleet(
            broker_url=None,
            credentials=parties.devices,
            federation=settings.federation,
            data=data,
            clicks=settings.devices.clicks,
            interactions=settings.learning.interactions,
            seed=settings.devices.seed,
            stores=dict.fromkeys(names, ":memory:"),
            n_rounds=n_rounds,
            give_up_after_s=_GIVE_UP_S,
            # Simulated users accept any privacy terms.
            privacy=Privacy(privacy_limits=PrivacyLimits(max_epsilon=1e6, min_cohort=2)),
        )

    async def _kill_one(self, helper: HelperProcess, database: Database) -> None:
        """Kill a helper in the middle of the rounds, and restart it after a while."""
        number = 0
        while number <= self._n_rounds // 2:
            await asyncio.sleep(_POLL_S)
            newest = await latest_round(database, self._settings.federation)
            number = 0 if newest is None else newest.number
        await helper.kill()
        say(f"round {number}: the helper {helper.name} was killed; it restarts in {_AWAY_S:g} s")
        await asyncio.sleep(_AWAY_S)
        await helper.start()
        say(f"the helper {helper.name} restarts; round {number} continues once it has answered")
        await _must_go_on(helper)

    async def _report(self, data: "LoadedData", ranker: "Ranker", database: Database, seconds: float) -> dict[str, Any]:
        results = await super()._report(data, ranker, database, seconds)
        policy = self._policy
        if policy is None:
            raise RuntimeError("the federation has no policy")
        ndcg, plain = results["ndcg_at_10"]["last"], self._without_noise["last"]
        n_updates, n_bodies = await count_bodies(database, self._settings.federation)
        say(f"nDCG@10 {ndcg:.4f} with noise, {plain:.4f} without (simulated, and nobody vanishes)")
        say(f"The database has a row for each of {n_updates} updates; {n_bodies} of them still have the sent vector")
        results["without_noise"] = self._without_noise
        results["privacy"] = {
            "mode": "secure",
            "mechanism": policy.noise.kind,
            "noise_by": self._promise.noise_by,
            "epsilon": policy.epsilon,
            "delta": policy.claimed_delta,
            "participations": policy.max_participations,
            "helpers": len(policy.helpers),
        }
        await self._report_proofs(results, database)
        results["rounds"] = {"completed": 0, "abandoned": 0} | results["rounds"]
        results["vectors_stored"] = n_bodies
        return results

    async def _report_proofs(self, results: dict[str, Any], database: Database) -> None:
        """Report the number of hostile devices and the results of all norm proofs."""
        results["hostile"], results["norm_proofs"] = self._n_hostile, None
        if self._promise.norm_proof == "none":
            return
        rounds = range(1, self._n_rounds + 1)
        proofs = await count_norm_proofs(database, self._settings.federation, rounds)
        say(f"Norm proofs: {proofs['checked']} checked; {proofs['failed']} failed and were left out of their sums")
        results["norm_proofs"] = proofs


async def _must_go_on(helper: HelperProcess) -> None:
    """Wait forever. Raises FoltrError if the helper's process ends by itself: no round would close without it."""
    raise FoltrError(f"the helper {helper.name} ended with exit code {await helper.wait()}")


def _without_noise(
    settings: Settings, training: "Training", data: "LoadedData", n_clients: int, n_rounds: int
) -> dict[str, float]:
    """Return nDCG@10 of the first and last model, simulated with the service's seeds without noise or losses."""
    config = SimulationConfig.read(
        {
            "method": settings.learning.method,
            "parameters": {name: getattr(training, name) for name in parameters_of(settings.learning.method)},
            "ranker": settings.learning.ranker,
            "hidden": settings.learning.hidden,
            "clients": n_clients,
            "interactions": settings.learning.interactions,
            "rounds": n_rounds,
            "clicks": settings.devices.clicks,
            "seed": settings.devices.seed,
            "eval_every": n_rounds,
            "privacy": "secure",
            "mechanism": "none",
            "participations": n_rounds,
        }
    )
    population = iid_population(
        data.train, data.test, n_clients, config.clicks, settings.learning.interactions, data.n_grades
    )
    ndcg = run(config, population).ndcg_at_10
    return {"first": ndcg[0][1], "last": ndcg[-1][1]}
