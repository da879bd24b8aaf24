"""What both classes for applications, `EdgeClient` and `SearchRanker`, offer about their device."""

import time
from abc import ABC, abstractmethod
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from foltr.core.erasure.states import ForgetState
from foltr.core.learning.comparison import Comparison
from foltr.core.learning.gate import Gate
from foltr.core.protocol.explorations import NoExploration
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.device_state import DeviceState, state_of
from foltr.edge_client.events import AuditLogCut
from foltr.edge_client.report import Report, report_of
from foltr.edge_client.store.store import DeviceStore

if TYPE_CHECKING:
    from foltr.edge_client.agent import Agent
    from foltr.edge_client.blockers import Blocker

SERP_LENGTH = PdgdTraining().serp_length
"""How many documents are shown until a federation decides it."""


class Device(ABC):
    """A device as its application sees it. A `SearchRanker` that is not enrolled has no federation yet."""

    @property
    @abstractmethod
    def agent(self) -> "Agent | None":
        """The agent behind this class; None until it is a client of a federation."""

    @property
    @abstractmethod
    def store(self) -> DeviceStore:
        """The device's SQLite file."""

    @property
    def state(self) -> DeviceState:
        """Its state, and whose order it shows; its text suits a log or a settings page."""
        return DeviceState("not enrolled") if self.agent is None else state_of(self.agent, self.blocker, None)

    def report(self) -> Report:
        """Return what the clicks on this device say: whether the model's order is better than the application's."""
        mixes = self.agent is None or not isinstance(self.agent.exploration, NoExploration)
        return report_of(self.state, self.gate, is_gated=self._is_gated, mixes=mixes)

    @property
    def _is_gated(self) -> bool:
        return self.agent is None or self.agent.gate is not None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.state}>"

    @property
    def blocker(self) -> "Blocker | None":
        """What keeps this device from taking part, and what to do about it; None without a known cause.

        Ranking and recording work anyway.
        """
        return None if self.agent is None else self.agent.blocker

    @property
    def federator_online(self) -> bool | None:
        """Whether the federator is online, by its heartbeat; None if unknown.

        The broker reports at once that it stopped or died; after three missed beats it counts as hanging.
        """
        if self.agent is None or not self.agent.link.connected:
            return None
        return self.agent.watch.online(time.monotonic())

    @property
    def has_joined(self) -> bool:
        """Whether the federation has accepted this client since this object was made."""
        return self.agent is not None and self.agent.membership.has_joined

    @property
    def next_visit_at(self) -> datetime | None:
        """When this device connects again, if its federation asks for visits; None during a visit, or after leaving.

        An application may end until then: the moment is stored, and the next start keeps it.
        """
        return None if self.agent is None else self.agent.visits.resting_until

    @property
    def quarantined(self) -> bool:
        """The federator's operator has excluded this client's updates; the user's clicks wait on the device."""
        return self.agent is not None and self.agent.contributor.quarantined

    @property
    def forgotten(self) -> bool:
        """The federation has erased this client, on `forget_me` or the operator's order, and so has the device.

        `rank` shows the documents in the given order, `record_clicks` stores nothing, and nothing is sent. The name
        cannot be used again: to come back, enrol under another.
        """
        return self.agent is not None and self.agent.forgotten

    @property
    def forget_state(self) -> ForgetState | None:
        """The progress of the wish to be forgotten, also from an earlier run; None without a wish or an erasure."""
        return None if self.agent is None else self.agent.forgetting.state

    @property
    def newest_audit_entry(self) -> int | None:
        """The number of the newest known entry of the federation's log of erasures; None before the first."""
        return None if self.agent is None else self.agent.audit.newest

    @property
    def audit_log_cut(self) -> AuditLogCut | None:
        """What contradicts the federation's log of erasures (docs/erasure.md); None if nothing does.

        It survives restarts if the federator signs its messages.
        """
        return None if self.agent is None else self.agent.audit.cut

    @property
    def n_waiting(self) -> int:
        """Interactions on the device that are in no update yet."""
        return self.store.n_waiting()

    @property
    def counted_through(self) -> int | None:
        """The last counted interaction. Under a policy: the last counted participation. None if unknown."""
        return self.store.watermark()

    @property
    def n_updates_counted(self) -> int:
        """Distinct updates that the federation said count, since this object was made."""
        return 0 if self.agent is None else self.agent.contributor.n_counted

    @property
    def receipts(self) -> dict[str, int]:
        """How often each code of an update's receipt came, since this object was made; a copy."""
        return {} if self.agent is None else dict(self.agent.inbox.receipts)

    @property
    def model_version(self) -> int | None:
        """The global model in use; None before the first one arrived."""
        working_model = None if self.agent is None else self.agent.trainer.working_model
        return None if working_model is None else working_model.base_version

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """A copy of the (n_weights,) by which this device ranks, including what it has learned; None before a model."""
        return None if self.agent is None else self.agent.weights

    @property
    def serp_length(self) -> int:
        """The number of documents that the federation asks to show; 10 before that."""
        round_ = None if self.agent is None else self.agent.participation.round
        return SERP_LENGTH if round_ is None else round_.training.serp_length

    @property
    def schema_difference(self) -> str | None:
        """How the federation's features differ from the application's; None without a known difference.

        Until they agree, clicks wait on the device, lists are in the given order, and nothing is sent.
        """
        return None if self.agent is None else self.agent.schema_difference

    @property
    def gate(self) -> Gate:
        """Whether lists come from the model, and the device's numbers behind that decision; a copy."""
        return Gate() if self.agent is None or self.agent.gate is None else self.agent.gate.gate

    @property
    def comparison(self) -> Comparison:
        """How the newest model compares with the federation's anchor on this device; decides its vote."""
        return Comparison() if self.agent is None else self.agent.voter.comparison
