"""The parties of ``foltr demo-secure``: an operator with a policy, a federator, helpers and devices."""

import base64
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, get_args

from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import BrokerAccess, Credentials, device_identity
from foltr.core.operator.policy_terms import NoiseBy, PolicyTerms, policy_of
from foltr.core.protocol.signed_policies import SignedPolicy, issue_policy
from foltr.core.protocol.signing import SigningKey
from foltr.core.secure.accounting import DEFAULT_EPSILON
from foltr.core.secure.mechanisms import MechanismName
from foltr.core.secure.plan import NormProof
from foltr.core.secure.sealing import SealingKey
from foltr_research.cli.demos.helper_process import HelperProcess

if TYPE_CHECKING:
    from foltr.broker.address import BrokerAddress

HELPERS: Final = ("north", "south")
_SHARE_TO_OPEN: Final = 0.8
"""Share of the staying devices that a sum needs to be opened."""


@dataclass(frozen=True)
class Promise:
    """The privacy promise of the demonstration's policy."""

    mechanism: MechanismName = "gaussian"
    noise_by: NoiseBy = "helpers"
    epsilon: float = DEFAULT_EPSILON

    @property
    def norm_proof(self) -> NormProof:
        """Return the kind of norm proof. Clients that add noise cannot prove norms."""
        return "none" if self.noise_by == "clients" else "l2"


def promise_of(mechanism: str, noise_by: str, epsilon: float) -> Promise:
    """Return the promise of these options. Raises SettingsError for an unknown name."""
    for name, value, known in (("mechanism", mechanism, MechanismName), ("noise_by", noise_by, NoiseBy)):
        if value not in get_args(known):
            raise SettingsError(f"{name}: {value!r} is not one of {', '.join(get_args(known))}")
    return Promise(cast("MechanismName", mechanism), cast("NoiseBy", noise_by), epsilon)


@dataclass(frozen=True)
class Parties:
    """Keys and credentials of all parties, and their common policy.

    Attributes:
        federator_key, sealing_key: private, of the federator.
        enrolment_key: public.
        devices: credentials by name.
    """

    federator_key: SigningKey
    sealing_key: SealingKey
    enrolment_key: bytes
    policy: SignedPolicy
    helpers: list[HelperProcess]
    devices: dict[str, Credentials]


def set_up(
    folder: Path,
    federation: str,
    address: "BrokerAddress",
    promise: Promise,
    *,
    names: Sequence[str],
    n_staying: int,
    n_rounds: int,
    n_interactions: int,
    dim: int,
) -> Parties:
    """Enrol helpers and devices, and sign a policy for a federation of so many rounds.

    Args:
        folder: for the helpers' files.
        names: of the devices.
        n_staying: devices that do not vanish and are in the sums.
        n_interactions: per update.
        dim: length of an update.
    """
    operator, federator = SigningKey.generate(), SigningKey.generate()
    access = BrokerAccess(broker_url=str(address), username=address.username, password=address.password)
    helpers = [
        HelperProcess.prepare(folder, name, federation, access, operator.public, federator.public) for name in HELPERS
    ]
    terms = PolicyTerms(
        tuple(helper.keys for helper in helpers),
        promise.mechanism,
        promise.noise_by,
        promise.epsilon,
        participations=n_rounds,
        clients=len(names),
        rounds=n_rounds,
        dim=dim,
        interactions=n_interactions,
        cohorts=1,
        n_min=max(2, math.floor(_SHARE_TO_OPEN * n_staying)),
        norm_proof=promise.norm_proof,
    )
    sealing_key = SealingKey.generate()
    policy = issue_policy(operator, policy_of(terms, federation, 1, time.time(), sealing_key.public))
    known = {"policy": base64.b64encode(policy.signed).decode()}
    for helper in helpers:
        helper.tell(known)
    devices = {
        name: device_identity(operator, federator.public, federation, name, serial, access, secure=True).model_copy(
            update=known
        )
        for serial, name in enumerate(names, start=1)
    }
    return Parties(federator, sealing_key, operator.public, policy, helpers, devices)
