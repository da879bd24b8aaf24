"""``foltr policy``: the operator's signed rules of secure sums, which a federator cannot change."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from foltr.broker.address import BrokerAddress
from foltr.broker.short_connections import read_retained
from foltr.cli import options
from foltr.cli.fields import option, read_model, takes_fields
from foltr.cli.operator.sending import publish as publish_retained
from foltr.cli.options import OperatorFolder
from foltr.cli.output import print_json, print_record, report, say
from foltr.cli.privacy.privacy import NoiseOptions
from foltr.core.errors import MessageError, SettingsError
from foltr.core.operator.authority import Authority
from foltr.core.operator.documents import recover_policy
from foltr.core.operator.helper_keys import read_helper_keys
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.core.operator.policy_terms import PolicyTerms, costs_in_words, policy_of
from foltr.core.protocol.policies import NEW_POLICY, GaussianNoise, replace_epsilon_of
from foltr.core.protocol.signed_policies import SignedPolicy, read_policy
from foltr.core.protocol.states import Privacy
from foltr.core.protocol.topics import Topics
from foltr.core.secure.accounting import DEFAULT_PARTICIPATIONS
from foltr.operations.operator_access import open_authority, redirect

Helpers = Annotated[
    list[Path],
    option(
        "A helper's public keys, from foltr helper keys; repeat for each of 2 to 8 helpers", "--helper", metavar="FILE"
    ),
]
_VERSIONS = {"min": 1, "max": 2**31 - 1}
NewVersion = Annotated[int | None, option("Default: the one after the newest", "--version", **_VERSIONS)]
ShownVersion = Annotated[int | None, option("Default: the newest", "--version", **_VERSIONS)]


@takes_fields(NoiseOptions, NoiseOptions.model_fields)
def new(
    helper: Helpers,
    version: NewVersion = None,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    json: options.Json = False,
    **asked: Any,
) -> None:
    """Sign a new policy, and show what it promises and costs. foltr policy publish puts it in force.

    Devices enrolled from now on carry it. Each policy needs new keys of the helpers.
    """
    given = read_model(NoiseOptions, asked).model_dump()
    given["participations"] = given["participations"] or min(DEFAULT_PARTICIPATIONS, given["rounds"])
    terms = PolicyTerms(tuple(read_helper_keys(path) for path in helper), **given)
    with open_authority(operator) as authority:
        authority.register.check_privacy(operator, Privacy.SECURE)
        authority.register.refuse_other_keys(terms.helpers)
        number = authority.policies.newest_version + 1 if version is None else version
        federator_key = authority.operator.federator_sealing_public_key
        policy = policy_of(terms, authority.federation, number, time.time(), federator_key)
        signed = authority.issue_policy(policy)
    costs = costs_in_words(signed.policy, terms.clients)
    report(
        json,
        {**_as_json(signed, published=False), "costs": costs},
        f"signed policy {number} of {signed.policy.federation}, {signed.hash.hex()}",
        *(f"  {line}" for line in costs),
        f"Devices enrolled from now on carry it. To put it in force: {command_in(operator, 'foltr policy publish')}",
    )


def show(
    version: ShownVersion = None, operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, json: options.Json = False
) -> None:
    """Show the policy of an operator's folder, its hash and its helpers."""
    with open_authority(operator) as authority:
        signed = authority.policies.get(version) if version is not None else authority.policies.newest()
        published = signed is not None and authority.register.published_policy == signed.policy.version
    if signed is None:
        raise SettingsError(f"policy: {operator} has none; make one: {command_in(operator, NEW_POLICY)}")
    if json:
        print_json(_as_json(signed, published))
        return
    print_record(_record(signed, published), title=f"Policy {signed.policy.version}")
    for keys in signed.policy.helpers:
        key = keys.signing_key.hex()
        say(f"helper {keys.name}: signs with {key}; its keys are for {signed.policy.n_epochs} epochs")
    if (proof := signed.policy.norm_proof) is not None:
        federator = proof.federator_key.hex()
        say(f"the verify key of norm proofs is sealed to each helper, and to the federator's key {federator}")


def publish(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None) -> None:
    """Publish the newest policy at the broker: the open round ends, and later rounds follow this policy."""
    with open_authority(operator) as authority:
        signed = authority.policies.newest()
        if signed is None:
            raise SettingsError(f"policy: {operator} has none to publish; make one: {command_in(operator, NEW_POLICY)}")
        signed = _take_back(authority, signed, broker)
        authority.publish_policy()
        where = publish_retained(authority, broker, Topics(authority.federation).policy)
    say(f"published policy {signed.policy.version} of {signed.policy.federation} at {where}: {signed.hash.hex()}")


def _take_back(authority: "Authority", newest: "SignedPolicy", broker: str | None) -> "SignedPolicy":
    """Adopt the broker's policy if this folder has lost it, before publishing over it.

    Returns:
        the newest policy of the folder afterwards.

    Raises:
        SettingsError: this folder's policies do not follow from the broker's.
    """
    topic = Topics(authority.federation).policy
    address = BrokerAddress.of(redirect(authority.operator.broker, broker))
    message = asyncio.run(read_retained(address, [topic])).get(topic)
    if message is None or not message.payload:
        return newest
    try:
        published = read_policy(message.payload, authority.operator.operator_keys, authority.federation)
    except MessageError:
        return newest  # not signed by this operator: devices ignore it, and ours replaces it
    others = recover_policy(authority.policies, published)
    if others is None:
        return newest
    authority.publish_policy()
    say(f"{authority.folder} had lost policy {published.version}, and has it again from the broker")
    if others:
        numbers = ", ".join(map(str, others))
        raise SettingsError(
            f"policy: {numbers} of {authority.folder} was not published: it does not follow from policy "
            f"{published.version}, which devices know, so they would refuse it. It was set aside. Make another: "
            f"{command_in(authority.folder, NEW_POLICY)}; and enrol devices that were enrolled since "
            "again, with --replace"
        )
    return published


def _as_json(signed: "SignedPolicy", published: bool) -> dict[str, object]:
    helpers = [
        {"name": one.name, "signing_key": one.signing_key.hex(), "sealing_key": one.sealing_key.hex()}
        for one in signed.policy.helpers
    ]
    return {"policy": _record(signed, published), "helpers": helpers}


def _record(signed: "SignedPolicy", published: bool) -> dict[str, object]:
    """Return a policy for printing. The noise is a variance for ``gaussian``, a scale for ``gamma``.

    ``epsilon`` compares with zeros in place of updates, ``replace_epsilon`` with other updates. The weight of votes,
    evaluation or credits is 0 if the policy has none.
    """
    policy, noise = signed.policy, signed.policy.noise
    return {
        "federation": policy.federation,
        "version": policy.version,
        "hash": signed.hash.hex(),
        "issued_at": datetime.fromtimestamp(policy.issued_at, UTC),
        "ends_at": datetime.fromtimestamp(policy.ends_at, UTC),
        "epoch_hours": policy.epoch_s / 3600,
        "published": published,
        "mechanism": noise.kind,
        "noise_by": "clients" if policy.noise_by_clients else "helpers",
        "noise": noise.variance if isinstance(noise, GaussianNoise) else noise.scale,
        "shares": None if isinstance(noise, GaussianNoise) else noise.n_shares,
        **{name: getattr(policy, name) for name in ("dim", "bound", "n_min", "n_max", "n_interactions")},
        **{name: getattr(policy, name) for name in ("max_participations", "period", "cohorts", "epsilon")},
        "replace_epsilon": round(replace_epsilon_of(policy), 4),
        "delta": policy.claimed_delta,
        "norm_proof": "none" if policy.norm_proof is None else policy.norm_proof.kind,
        **policy.weights_beside,
    }
