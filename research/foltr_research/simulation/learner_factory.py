"""Builds a configuration's learner: a federation with the runner of its clients, or one of the references."""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import SettingsError
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.fpdgd import FpdgdDevice
from foltr.core.methods.registry import Ranker, make_device, spec_of
from foltr.core.methods.spec import PdgdSteps
from foltr.core.protocol.trainings import Training
from foltr_research.simulation.blocks.block_runners import block_runner
from foltr_research.simulation.centralised import CentralLambdaRank, CentralPdgd, LocalPdgd
from foltr_research.simulation.click_tables import is_table
from foltr_research.simulation.clients.applications import Applications
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.clients.voters import LIES, Voters
from foltr_research.simulation.config import SimulationConfig, attack_of, parameter_values, rule_of
from foltr_research.simulation.learners import Defence, Federation, Learner
from foltr_research.simulation.method_names import SIMULATOR_METHODS
from foltr_research.simulation.plugins import held
from foltr_research.simulation.runners import ReferenceRunner, Runner
from foltr_research.simulation.secure_sums import secure_sums_of

RunnerKind = Literal["auto", "reference", "block"]
# More than one, since a client without clicks learns nothing.
_CLIENTS_COMPILED_FOR = 20


def make_learner(
    config: SimulationConfig,
    population: Population,
    crowd: Crowd,
    training: Training,
    ranker: Ranker,
    first: NDArray[np.float32],
    kind: RunnerKind,
) -> tuple[Learner, str]:
    """Return the learner and its kind. A checkpoint of one kind does not fit another.

    Args:
        first: (n_weights + n_auxiliary,) the first model.
        kind: of runner; see `foltr_research.simulation.federated.run`.

    Raises:
        SettingsError: the method has no such runner.
    """
    if config.method == "lambdarank":
        rate = float(parameter_values(config)["learning_rate"])
        return CentralLambdaRank(population, first, config.seed, rate), "central"
    if config.method in SIMULATOR_METHODS:
        pdgd = spec_of(training).pdgd
        steps = None if pdgd is None else pdgd(training, ranker)
        if steps is None or steps != PdgdSteps(steps.learning_rate):
            raise SettingsError(f"{config.method}: it learns by PDGD, not by {training.kind}")
        learning = (training.serp_length, steps.learning_rate)
        everything = (population, crowd, *learning, ranker, first, config.seed, config.participants)
        if config.method == "local":
            return LocalPdgd(*everything), "block"
        return CentralPdgd(*everything, batch=config.method == "pdgd-batch"), "central"
    voters = None
    if config.take_back:
        voters = Voters(ranker, first, frozenset(range(config.attackers)), LIES[config.liars_vote])
    chosen: Runner | None = None
    in_blocks = config.clicks_per_round is None and config.base_feature is None
    in_blocks = in_blocks and voters is None and all(map(is_table, crowd.click_models))
    if kind != "reference" and in_blocks:
        chosen = block_runner(population, crowd, training, ranker)
        if chosen is not None and held("method", config.method) is not None:
            _check_steps(config.method, training, ranker, first)
    if chosen is None:
        if kind == "block":
            raise SettingsError(f"runner: {config.method} with these settings is not run in blocks")
        applications = None
        if config.base_feature is not None:
            applications = Applications(config.base_feature, population.datasets[0].n_features)
        chosen = ReferenceRunner(population, crowd, training, ranker, config.clicks_per_round, applications, voters)
    chosen_kind = "reference" if isinstance(chosen, ReferenceRunner) else "block"
    learner = Federation(
        population,
        chosen,
        training,
        ranker,
        first,
        config.seed,
        config.participants,
        Defence(
            rule_of(config),
            attack_of(config),
            config.attackers,
            secure_sums_of(config, training, ranker),
            voters,
        ),
    )
    return learner, chosen_kind


def _check_steps(method: str, training: Training, ranker: Ranker, first: NDArray[np.float32]) -> None:
    """Raise SettingsError if a method from outside has steps for blocks, and its devices do something else."""
    device = make_device(training, ranker, first, 0, DeviceContext(0))
    if type(device) is not FpdgdDevice:
        raise SettingsError(
            f"method: {method} has pdgd, whose steps are run in blocks, and a device of its own, which blocks would "
            "leave out; make the device with device_of, or leave out pdgd"
        )


def compile_kernels(
    config: SimulationConfig,
    population: Population,
    training: Training,
    ranker: Ranker,
    first: NDArray[np.float32],
    kind: RunnerKind,
) -> None:
    """Let some clients play a round apart from the run, so that compilation is not timed as learning."""
    if config.method == "lambdarank":
        return
    alone = replace(population, clients=population.clients[:_CLIENTS_COMPILED_FOR])
    # Attacks have no kernels, and all of these few clients might be attackers.
    config = config.model_copy(update={"participants": None, "attack": None, "attackers": 0, "attack_parameters": {}})
    crowd = Crowd(alone, config.seed, training.serp_length)
    learner, _ = make_learner(config, alone, crowd, training, ranker, first, kind)
    learner.round(1)
