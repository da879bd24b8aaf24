"""Stopping a simulation and resuming it with identical results.

A checkpoint contains all that the rest of a run depends on: the learner, every random stream, the results so far. The
file is a line that names the format, a SHA-256 and NumPy's ``.npz``. It contains no code.
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError, SettingsError
from foltr.core.protocol.trainings import Training
from foltr.core.user_files import read_beginning
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.fingerprints import whole_plugins
from foltr_research.simulation.runners import State

_FORMAT = b"foltr checkpoint 2\n"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class CheckpointPlan:
    """The file for checkpoints, and how often to write them.

    Attributes:
        every: rounds; one is also written when the run is asked to stop.
        resume: begin from the file, which must exist.
    """

    path: Path
    every: int = 100
    resume: bool = False


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A run between two rounds.

    Attributes:
        config: of the run.
        digest: of the data and of the settings in use, see `digest_of`.
        progress: results so far, as JSON.
        curves, learner, crowd: arrays by name.
    """

    config: SimulationConfig
    digest: str
    progress: dict[str, Any]
    curves: State
    learner: State
    crowd: State


def save(path: Path, snapshot: Snapshot) -> None:
    """Write a snapshot. After a crash either the old or the new file exists."""
    header = {
        "config": snapshot.config.model_dump(mode="json"),
        "digest": snapshot.digest,
        "progress": snapshot.progress,
    }
    arrays: dict[str, NDArray[np.generic]] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    for group in ("curves", "learner", "crowd"):
        arrays.update({f"{group}.{name}": array for name, array in getattr(snapshot, group).items()})
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # the stub takes the names for its own options
    content = buffer.getvalue()
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(_FORMAT + hashlib.sha256(content).digest() + content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise SettingsError(f"{path}: a checkpoint cannot be written: {error}") from error


def load(path: Path, config: SimulationConfig, digest: str) -> Snapshot:
    """Read a snapshot of this configuration on this data.

    Raises:
        SettingsError: the file is missing, or of another configuration; the message says what differs.
        DataError: it is damaged, or of other data.
    """
    try:
        is_one = read_beginning(path, len(_FORMAT)) == _FORMAT
        # Only a file written by a run is read whole.
        whole = path.read_bytes() if is_one else b""
    except OSError as error:
        raise SettingsError(f"{path}: no checkpoint to resume from: {error.strerror}") from error
    content = whole[len(_FORMAT) + _DIGEST_BYTES :]
    if not is_one:
        raise DataError(f"{path}: not a checkpoint of this version; to start over, run without --resume")
    if hashlib.sha256(content).digest() != whole[len(_FORMAT) : len(_FORMAT) + _DIGEST_BYTES]:
        raise DataError(f"{path}: the checkpoint is damaged; to start over, run without --resume")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            header = json.loads(arrays["header"].tobytes())
            groups: dict[str, State] = {"curves": {}, "learner": {}, "crowd": {}}
            for name in arrays.files:
                group, _, key = name.partition(".")
                if group in groups:
                    groups[group][key] = arrays[name]
        stored_config = SimulationConfig.read(header["config"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, SettingsError) as error:
        raise DataError(
            f"{path}: the checkpoint cannot be read ({error}); to start over, run without --resume"
        ) from error
    different = differences(stored_config, config)
    if different:
        raise SettingsError(f"{path}: the checkpoint is of another configuration: {'; '.join(different)}")
    if header["digest"] != digest:
        raise DataError(f"{path}: the checkpoint is of other data or other settings of the method than these")
    return Snapshot(stored_config, header["digest"], header["progress"], **groups)


def digest_of(population: Population, training: Training, plugins: Mapping[str, str]) -> str:
    """Return a hexadecimal digest of what a run depends on besides its configuration.

    Args:
        plugins: `foltr_research.simulation.plugins.fingerprints_of` the configuration.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(training.model_dump_json(exclude={"logging_policy"}).encode())
    if plugins:
        digest.update(json.dumps(whole_plugins(plugins)).encode())
    digest.update(getattr(training, "logging_policy", b""))
    shared = () if population.warm_up is None else (population.warm_up,)
    for dataset in (*population.datasets, *population.tests, *shared):
        _add(digest, dataset)
    for client in population.clients:
        digest.update(
            f"{client.name} {client.dataset} {client.test} {client.n_interactions} {client.click_models}".encode()
        )
    for queries in {id(client.queries): client.queries for client in population.clients}.values():
        digest.update(queries.tobytes())
    return digest.hexdigest()


def differences(one: SimulationConfig, other: SimulationConfig) -> list[str]:
    """Return a line for each field in which two configurations differ."""
    first, second = one.model_dump(), other.model_dump()
    return [f"{name}: {first[name]} and {second[name]}" for name in first if first[name] != second[name]]


def _add(digest: "hashlib.blake2b", dataset: RankingDataset) -> None:
    for array in (dataset.features, dataset.relevance, dataset.offsets):
        digest.update(np.ascontiguousarray(array).data)
