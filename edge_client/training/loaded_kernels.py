"""A separate thread loads a device's kernels, so that nobody who types a query waits for that.

Importing numba and loading machine code takes 0.4 s; compiling it, after an upgrade, many seconds. Loading begins once
a device knows what it will learn. Until it is done plain functions make the lists, and recorded lists wait in the
store: everything is learned by machine code, to the simulator's bits (`foltr.edge_client.training.trainer`).

Numba loads a kernel for the types it is called with. So the thread does with a copy of the model what a device does:
make lists, learn from one, and make an update of it.
"""

import contextlib
import threading
from collections.abc import Iterator

import numpy as np

from foltr.core.errors import SettingsError
from foltr.core.learning.display import DrawnList, best_list
from foltr.core.learning.gate import Source
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.linear import rank_by_score
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.lists import list_from
from foltr.core.numerics.compiled import calls_machine_code
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.trainings import NeuralRankerSpec
from foltr.edge_client.training.working_model import BareModel, WorkingModel, device_for

_N_DOCUMENTS = 3

_Key = tuple[object, ...]
# Of this process, which has one copy of each kernel. Loaded ones are among those begun.
_begun: set[_Key] = set()
_loaded: set[_Key] = set()
_lock = threading.Lock()


def are_loaded(working_model: WorkingModel, *, gated: bool) -> bool:
    """Whether this model's kernels are loaded; the first call starts loading them in the background.

    Always true without machine code: without numba, and in a thread that calls the plain functions.

    Args:
        gated: a gate decides the source of lists, not only the model.
    """
    if not calls_machine_code():
        return True
    key = (gated, *_key(working_model))
    if key in _loaded:
        return True
    if key in _begun:
        return False
    # Not a daemon: a process that ends in the middle of LLVM may crash. The process waits for the current step only.
    thread = threading.Thread(target=_load, args=(key, _example_of(working_model), gated), name="foltr-kernels")
    with _lock:
        if key in _begun:
            return False
        try:
            thread.start()
        except RuntimeError:  # no thread available: kernels are loaded at their first call
            _loaded.add(key)
            return True
        _begun.add(key)
    return False


def _key(working_model: WorkingModel) -> _Key:
    ranker, training = working_model.announcement.ranker, working_model.training
    activation = ranker.activation if isinstance(ranker, NeuralRankerSpec) else None
    return type(training), type(working_model.exploration), type(ranker), activation


def _example_of(working_model: WorkingModel) -> WorkingModel:
    """Return a working model of the same kind that shares nothing with it.

    Called in the asking thread: methods draw from generators that two threads must not share.
    """
    model, training, device = working_model.announcement, working_model.training, None
    if training is not None:
        with contextlib.suppress(SettingsError):
            device = device_for(model, training, DeviceContext(0))
    return WorkingModel(model, training, device)


def _load(key: _Key, example: WorkingModel, gated: bool) -> None:
    try:
        # The first real call reports what cannot be loaded.
        with contextlib.suppress(Exception):
            for _ in _use(example, list(Source) if gated else [Source.MODEL]):
                if not threading.main_thread().is_alive():
                    return  # the process ends
    finally:
        _loaded.add(key)


def _use(example: WorkingModel, sources: list[Source]) -> Iterator[None]:
    """Run each step of a device, from its first list to its first update."""
    rng, model = np.random.default_rng(0), example.announcement
    features = rng.random((_N_DOCUMENTS, example.n_features), np.float32)
    # These weights have another type: of a model before its round is known, and of one that is compared.
    BareModel(model.ranker, unpack_vector(model.weights)).scores(features, exploring=False)
    yield
    scores, variant = example.ranker.scores(features, exploring=True)
    yield
    base_scores = -np.arange(_N_DOCUMENTS, dtype=np.float64)
    rank_by_score(base_scores, _N_DOCUMENTS)
    shown: DrawnList = best_list(scores, _N_DOCUMENTS)
    if example.draws_lists:
        for source in sources:
            drawn = list_from(source, example.exploration, scores, base_scores, _N_DOCUMENTS, rng)
            shown = drawn.shown
            yield
    clicks = np.arange(_N_DOCUMENTS) == 1
    seen = (features, shown.ranking, clicks, variant, example.base_version, shown.reversals, shown.log_probability)
    example.learn(Interaction(1, *seen), rng)
    yield
    if example.device is not None:
        example.device.body(rng)
