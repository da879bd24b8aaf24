"""A device's guard holds some of its user's clicks back, and refuses a model that explains them far worse.

What is held back is not learned from: the given share of the lists, whatever was clicked. An update takes so many lists
that were not held back, so its moment would tell of the clicks if they decided which are. Of lists with a preference in
their clicks the newest `MOST_LISTS` stay in the device's store; they are never sent. So the guard costs that share of
the clicks.

A refusal is not for good: every newer model is judged again, and the refused one too with each further list that is
held back. There is no number of refusals after which any model is taken, since whoever poisons one model can poison
the next. Meanwhile lists are ranked by the model the device has, the clicks wait in the store, and the device is in no
round that is based on what it refused. Nobody waits for it without end: rounds end by their deadline.

A model that the federation has withdrawn is used by no device, whatever its guard says: it holds what was unlearned
since. So the guard stands back where the model that it keeps is withdrawn, and the one that it refused is used.

What it cannot see: a model that becomes worse in many steps of less than
`foltr.edge_client.guard.model_judgement.MARGIN`, and anything at all before
`foltr.edge_client.guard.model_judgement.FEWEST_LISTS` lists are held back. It needs lists drawn from the scores, for
which the probability of another order is known; methods that show other lists are not guarded.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.agreement import agreement, preferences
from foltr.core.logs import get_logger
from foltr.core.methods.base import scores_of
from foltr.core.methods.registry import Ranker, spec_of
from foltr.core.methods.spec import Lists
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.trainings import Training
from foltr.edge_client.guard.held_back import HeldBackList, HeldBackStore, RefusedModel
from foltr.edge_client.guard.model_judgement import Judgement, judge
from foltr.edge_client.serps import Serp
from foltr.edge_client.store.interaction_rows import Within
from foltr.edge_client.store.store import DeviceStore

log = get_logger(__name__)

LARGEST_SHARE = 0.5

WeightsUnder = Callable[[ModelAnnouncement], NDArray[np.floating]]
"""From a global model to the (n_weights,) of the ranker this device would begin with under it."""


class Guard:
    """Judges the models of one device.

    Args:
        share: of the lists, how many are held back.
        seed: of where in the first ``1 / share`` lists the first one is; None takes fresh entropy.

    Attributes:
        n_held_back: lists since this was made.
        refused_models: those that are remembered, the lowest version first; with those that were withdrawn.
        refused, refused_payload: the newest model, if it is refused, and the announcement as it came.
    """

    def __init__(self, share: float, store: DeviceStore, client_id: str, seed: int | None) -> None:
        self._share = checked_share(share)
        self._held_back = HeldBackStore(store)
        self._client_id = client_id
        entropy = None if seed is None else [seed, *b"guard"]
        self._due = float(np.random.default_rng(entropy).random())
        self._n_judged = self._n_kept = 0
        self._idle: bool | None = None  # until a method is known
        self.n_held_back = 0
        self.refused_models: tuple[RefusedModel, ...] = self._held_back.refused()
        self.refused: ModelAnnouncement | None = None
        self.refused_payload = b""

    def follow_training(self, training: Training) -> None:
        """Say once where the announced method cannot be guarded."""
        method = spec_of(training)
        idle = method.lists is not Lists.DRAWN
        if idle and not self._idle:
            log.warning("guard_idle", client_id=self._client_id, cause=f"{method.name} draws no lists by score")
        self._idle = idle

    def hold_back(self, serp: Serp, clicks: NDArray[np.bool_], within: Within | None = None) -> bool:
        """Hold this list back, or not: by how many there were before it, and never by its clicks.

        A list that is held back must not be learned from. It is on disk where its clicks say anything. None are before
        a method is known: it may be one whose lists say nothing to a guard.

        Args:
            within: is run in the transaction that keeps it, if it is held back.

        Raises:
            DataError: the store cannot keep it; nothing was changed.
        """
        if self._idle is not False:
            return False
        if self._due + self._share < 1.0:
            self._due += self._share
            return False
        said = preferences(serp.reversals, clicks)
        is_telling = said.total > 0.0
        if is_telling:
            self._held_back.add_list(serp.serp_id, HeldBackList(serp.features[serp.ranking], said), within)
        else:
            self._held_back.pass_over(within)
        self._due += self._share - 1.0
        self.n_held_back += 1
        self._n_kept += is_telling
        return True

    def admits(
        self,
        model: ModelAnnouncement,
        payload: bytes,
        kept: ModelAnnouncement | None,
        weights_under: WeightsUnder,
    ) -> bool:
        """Whether the device should use ``model``, announced by ``payload``, in place of ``kept``."""
        if kept is None or model == kept or self._idle:
            self.refused = None
            self._forget_refusal(model.version)
            return True
        if model == self.refused and self._n_judged == self._n_kept:
            return False  # announced again, and nothing new to judge by
        self._n_judged = self._n_kept
        judgement = self._judge(model, kept, weights_under)
        if not judgement.refused:
            self._took(model, judgement)
            return True
        if model != self.refused:
            log.warning("model_refused", **self._log_fields(model, judgement), kept_version=kept.version)
        self.refused, self.refused_payload = model, payload
        self._remember(RefusedModel(model.version, kept.version, judgement))
        return False

    def withdraw(self, below: int, in_use: int | None) -> tuple[ModelAnnouncement, bytes] | None:
        """Remember that all models below a version are withdrawn, and refuse the newest no longer if it stands in.

        Args:
            in_use: the version of the model in use, if it is one of them.

        Returns:
            The refused model that takes its place; None where there is none, or the one in use stays.
        """
        for one in self.refused_models:
            if one.version < below and not one.withdrawn:
                self._remember(replace(one, withdrawn=True))
        if in_use is not None:
            self.note_withdrawn(in_use)
        if self.refused is None or (in_use is None and self.refused.version >= below):
            return None
        refused, payload = self.refused, self.refused_payload
        self.refused, self.refused_payload = None, b""
        if refused.version < below:
            return None
        self._forget_refusal(refused.version)
        return refused, payload

    def note_withdrawn(self, version: int) -> None:
        """Remember that a model is not used as it is withdrawn; what it was refused for, if it was, stays known."""
        known = next((one for one in self.refused_models if one.version == version), RefusedModel(version))
        if not known.withdrawn:
            self._remember(replace(known, withdrawn=True))

    def _judge(self, model: ModelAnnouncement, kept: ModelAnnouncement, weights_under: WeightsUnder) -> Judgement:
        fits = (kept.ranker.n_features, model.ranker.n_features)
        lists = [held for held in self._held_back.lists() if (held.features.shape[1],) * 2 == fits]
        return judge(
            np.array([held.preferences.total for held in lists]),
            _agreements(kept.ranker, weights_under(kept), lists),
            _agreements(model.ranker, weights_under(model), lists),
        )

    def _took(self, model: ModelAnnouncement, judgement: Judgement) -> None:
        self.refused = None
        if self._forget_refusal(model.version):
            log.info("model_admitted", **self._log_fields(model, judgement))

    def _forget_refusal(self, version: int) -> bool:
        """Remember no refusal of a model that is used; return whether there was one."""
        others = tuple(one for one in self.refused_models if one.version != version)
        if len(others) == len(self.refused_models):
            return False
        try:
            self._held_back.remove_refused(version)
        except DataError as error:
            log.warning("refusal_not_removed", cause=str(error))
        self.refused_models = others
        return True

    def _remember(self, refused: RefusedModel) -> None:
        try:
            self._held_back.put_refused(refused)
        except DataError as error:
            log.warning("refusal_not_stored", cause=str(error))  # the model is judged again after a restart anyway
        others = (one for one in self.refused_models if one.version != refused.version)
        self.refused_models = tuple(sorted((*others, refused), key=lambda one: one.version))

    def _log_fields(self, model: ModelAnnouncement, judgement: Judgement) -> dict[str, object]:
        return {
            "client_id": self._client_id,
            "version": model.version,
            "n_lists": judgement.n_lists,
            "agreement_kept": round(judgement.kept, 4),
            "agreement_new": round(judgement.new, 4),
            "standard_error": round(judgement.standard_error, 4),
        }


def checked_share(share: float) -> float:
    """The share; SettingsError where it is not above 0 and at most `LARGEST_SHARE`."""
    if not 0.0 < share <= LARGEST_SHARE:
        raise SettingsError(
            f"guard: {share:g} is no share of the clicks to hold back; above 0 and at most {LARGEST_SHARE}, e.g. 0.1"
        )
    return share


def _agreements(ranker: Ranker, weights: NDArray[np.floating], lists: Sequence[HeldBackList]) -> NDArray[np.float64]:
    if not lists:
        return np.zeros(0)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not a number agrees with nothing
        scores = scores_of(ranker, weights, np.concatenate([held.features for held in lists]))
    ends = np.cumsum([len(held.features) for held in lists])
    return np.array(
        [agreement(own, held.preferences) for own, held in zip(np.split(scores, ends[:-1]), lists, strict=True)]
    )
