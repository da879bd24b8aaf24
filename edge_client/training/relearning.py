"""A device helps to unlearn other clients: it learns again from interactions that it kept.

In each step of an unlearning job the federator announces weights, and every device answers with what it learns from
them (thesis, Section 6.1; `foltr.federator.job`), from a few interactions drawn from those that count. These
interactions, those waiting for the next round, and the method's state on the device do not change.
"""

import time
from collections.abc import Callable

import numpy as np

from foltr.core.errors import DataError
from foltr.core.logs import get_logger
from foltr.core.methods.registry import learns_from_kept_lists
from foltr.core.protocol.announcements import ModelAnnouncement, NamedErasure, UnlearningRound
from foltr.core.protocol.chunks import needs_chunks
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import UnlearningUpdate
from foltr.edge_client.session import Session
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.training.trainer import Trainer
from foltr.edge_client.training.unlearning_limits import UnlearningLimits
from foltr.edge_client.training.working_model import WorkingModel

log = get_logger(__name__)

_DAY_S = 86_400
JOBS_AN_ERASURE = 2
"""A client is unlearned by one job, and by a second one if the first has covered too little."""


class Relearning:
    """Answers the steps of unlearning jobs for one device.

    Args:
        device_seed: with the job and the step it decides which interactions are drawn: a restarted device draws the
            same, while all of them may still be learned.
        clock: the device's, in epoch seconds; separates the days.

    Attributes:
        due: the answer to send; None once it was sent.
    """

    def __init__(
        self,
        session: Session,
        store: DeviceStore,
        trainer: Trainer,
        device_seed: int,
        limits: UnlearningLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._store = store
        self._trainer = trainer
        self._device_seed = device_seed
        self._limits = limits
        self._clock = clock
        self._told: tuple[int, str] | None = None  # the job and reason that were logged last
        # A step, without its deadline, and its answer.
        self._newest: tuple[UnlearningRound, UnlearningUpdate | None] | None = None
        self.due: UnlearningUpdate | None = None

    def receive_step(self, round_: UnlearningRound) -> None:
        """Take a step. A repeated one gets the same answer, which may have been lost."""
        if not round_.open:
            self.forget()
            return
        step = round_.model_copy(update={"closes_at": 0.0})
        newest, self.due = self._newest or (None, None)
        if newest != step or self.due is None:
            self.due = self._answer(round_)
        self._newest = step, self.due

    def mark_sent(self, answer: UnlearningUpdate) -> None:
        if self.due is answer:
            self.due = None

    def forget(self) -> None:
        """Forget the step and its answer."""
        self._newest = self.due = None

    def _answer(self, round_: UnlearningRound) -> UnlearningUpdate | None:
        """Learn in a step; return the answer, or None if it is empty or too large."""
        client_id = self._session.client_id
        if not learns_from_kept_lists(round_.training, round_.ranker):
            return None
        day = int(self._clock() // _DAY_S)
        objection = self._objection(round_, day)
        if objection is not None:
            self._log_unanswered(round_, objection)
            return None
        rng = np.random.default_rng([self._device_seed, *b"unlearning", round_.job, round_.step])
        try:
            working_model = self._model_of_step(round_, rng)
            if working_model is None or working_model.device is None:
                return None
            answer = UnlearningUpdate(
                federation=self._session.federation,
                client_id=client_id,
                job=round_.job,
                step=round_.step,
                n_interactions=len(working_model.interaction_ids),
                body=working_model.device.body(rng),
            )
            payload = self._session.sign(answer, ClientTopic.UNLEARNING)
            if needs_chunks(payload):
                log.warning("unlearning_answer_too_large", client_id=client_id, job=round_.job, n_bytes=len(payload))
                return None
            named = [(one.audit_seq, one.audit_hash) for one in round_.erasures]
            self._store.count_answer(day, working_model.interaction_ids, round_.job, named)
        except DataError as error:
            log.warning("unlearning_step_failed", client_id=client_id, job=round_.job, cause=str(error))
            return None
        return answer

    def _objection(self, round_: UnlearningRound, day: int) -> str | None:
        """Return why a step is not answered, by the device's limits; None if it may be."""
        limits = self._limits
        if all(self._is_used_up(one, round_.job) for one in round_.erasures):
            return f"the erasures that it names were used for {JOBS_AN_ERASURE} other jobs"
        if round_.local_interactions < limits.fewest_interactions:
            return f"it asks for {round_.local_interactions} interactions, fewer than {limits.fewest_interactions}"
        if self._store.n_answered(day) >= limits.steps_a_day:
            return f"{limits.steps_a_day} steps were answered today"
        if len(self._store.kept_ids(limits.steps_a_click)) < limits.fewest_interactions:
            return f"fewer than {limits.fewest_interactions} interactions are left to learn from"
        return None

    def _is_used_up(self, erasure: NamedErasure, job: int) -> bool:
        others = self._store.jobs_of((erasure.audit_seq, erasure.audit_hash)) - {job}
        return len(others) >= JOBS_AN_ERASURE

    def _log_unanswered(self, round_: UnlearningRound, objection: str) -> None:
        """Log once per job why its steps are not answered."""
        if self._told != (round_.job, objection):
            log.warning("unlearning_step_skipped", client_id=self._session.client_id, job=round_.job, cause=objection)
        self._told = round_.job, objection

    def _model_of_step(self, round_: UnlearningRound, rng: np.random.Generator) -> WorkingModel | None:
        """Make the step's model, and learn as many interactions as it asks for; None if there are too few.

        Interactions that cannot be learned, e.g. with another number of features, are replaced by others.
        """
        kept = self._store.kept_ids(self._limits.steps_a_click)
        model = ModelAnnouncement(
            federation=round_.federation,
            version=0,  # no announced method reads it here
            ranker=round_.ranker,
            n_auxiliary=round_.n_auxiliary,
            weights=round_.weights,
        )
        # A kept list may show an order that the erased client has shaped: only its clicks are learned.
        device = self._trainer.device_under(model, round_.training, shows_base=False) if kept else None
        if device is None:
            return None
        working_model, causes = WorkingModel(model, round_.training, device), set[str]()
        for i in rng.permutation(kept).tolist():
            if len(working_model.interaction_ids) == round_.local_interactions:
                break
            try:
                working_model.learn(self._store.kept_interaction(i), rng)
            except DataError as error:
                causes.add(str(error))
        for cause in sorted(causes):
            log.warning("kept_interactions_not_learned", client_id=self._session.client_id, cause=cause)
        if len(working_model.interaction_ids) < self._limits.fewest_interactions:
            return None
        return working_model
