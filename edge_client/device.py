"""What both doors for applications, `EdgeClient` and `SearchRanker`, say of their device."""

import time
from abc import ABC, abstractmethod
from datetime import datetime

import numpy as np
import numpy.typing as npt

from foltr.core.erasure.states import ForgetState
from foltr.core.learning.comparison import Comparison
from foltr.core.learning.gate import Gate
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.agent import Agent
from foltr.edge_client.blockers import Blocker
from foltr.edge_client.events import AuditLogCut
from foltr.edge_client.store.store import DeviceStore

SERP_LENGTH = PdgdTraining().serp_length
"""How many documents are shown as long as no federation has said it."""


class Device(ABC):
    """A device as its application sees it. A `SearchRanker` that is not enrolled knows of no federation yet."""

    @property
    @abstractmethod
    def agent(self) -> Agent | None:
        """What acts behind this door; None as long as it is no client of a federation."""

    @property
    @abstractmethod
    def store(self) -> DeviceStore:
        """The device's own file."""

    @property
    def blocker(self) -> Blocker | None:
        """What keeps this device from taking part, and what to do about it; None if nothing is known to.

        Ranking and recording go on all the same.
        """
        return None if self.agent is None else self.agent.blocker

    @property
    def federator_online(self) -> bool | None:
        """Whether the federator is there, by its heartbeat; None while nothing says so.

        The broker tells at once that it stopped or died; that it hangs is known after three missed beats.
        """
        if self.agent is None or not self.agent.link.connected:
            return None
        return self.agent.watch.online(time.monotonic())

    @property
    def has_joined(self) -> bool:
        """Whether the federation has taken this client in, since it was made."""
        return self.agent is not None and self.agent.membership.has_joined

    @property
    def next_visit_at(self) -> datetime | None:
        """When this device connects again, if its federation asks for visits; None also during a visit, or having left.

        An application may end until then: the moment is in the store, and the next start keeps it.
        """
        return None if self.agent is None else self.agent.visits.resting_until

    @property
    def quarantined(self) -> bool:
        """The federator's operator has excluded this client's updates; what its user clicks waits on the device."""
        return self.agent is not None and self.agent.contributor.quarantined

    @property
    def forgotten(self) -> bool:
        """The federation has erased this client, as `forget_me` or the operator asked, and so has the device.

        `rank` shows the documents in the order they are given, `record_clicks` stores nothing, and nothing is sent. The
        name is not used again: to come back, enrol under another.
        """
        return self.agent is not None and self.agent.forgotten

    @property
    def forget_state(self) -> ForgetState | None:
        """How far the wish to be forgotten is, also of an earlier run; None without one, and without an erasure."""
        return None if self.agent is None else self.agent.forgetting.state

    @property
    def newest_audit_entry(self) -> int | None:
        """The number of the newest entry of the federation's log of erasures that was heard of; None before one."""
        return None if self.agent is None else self.agent.audit.newest

    @property
    def audit_log_cut(self) -> AuditLogCut | None:
        """What this device has heard that contradicts the federation's log of erasures (docs/erasure.md); else None.

        It is kept over restarts if the federator signs what it says.
        """
        return None if self.agent is None else self.agent.audit.cut

    @property
    def n_waiting(self) -> int:
        """Interactions on the device that are in no update yet."""
        return self.store.n_waiting()

    @property
    def counted_through(self) -> int | None:
        """The last counted interaction, as the federation said; under a policy the last participation; else None."""
        return self.store.watermark()

    @property
    def n_updates_counted(self) -> int:
        """Distinct updates that the federation said count, since this client was made."""
        return 0 if self.agent is None else self.agent.contributor.n_counted

    @property
    def receipts(self) -> dict[str, int]:
        """How often each code of an update's receipt came, since this client was made; as of now."""
        return {} if self.agent is None else dict(self.agent.inbox.receipts)

    @property
    def model_version(self) -> int | None:
        """The global model in use; None before the first one arrived."""
        working_model = None if self.agent is None else self.agent.trainer.working_model
        return None if working_model is None else working_model.base_version

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """A copy of the (n_weights,) by which this device ranks, with what it has learned; None before a model."""
        return None if self.agent is None else self.agent.weights

    @property
    def serp_length(self) -> int:
        """The number of documents the federation asks to show; 10 before it does."""
        round_ = None if self.agent is None else self.agent.participation.round
        return SERP_LENGTH if round_ is None else round_.training.serp_length

    @property
    def schema_difference(self) -> str | None:
        """How the federation's features differ from the application's; None if nothing says that they do.

        As long as they do, clicks wait on the device, lists are in the order given, and nothing is sent.
        """
        return None if self.agent is None else self.agent.schema_difference

    @property
    def gate(self) -> Gate:
        """Whether lists come from the model, and the numbers of this device that decided it; a copy."""
        return Gate() if self.agent is None or self.agent.gate is None else self.agent.gate.gate

    @property
    def comparison(self) -> Comparison:
        """What this device knows of the newest model against the federation's anchor; what its vote is made of."""
        return Comparison() if self.agent is None else self.agent.voter.comparison
