"""Whatever arrives at a helper, also under the right signature: it goes on, and what it answers can be sent."""

from random import Random

from fuzz.corpus import Sample
from fuzz.mutations import mutated
from support.helper_desks import TOPICS
from support.secure_cohorts import FEDERATION

from foltr.core.protocol.codec import decode, open_envelope
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES
from foltr.core.protocol.helper_messages import HelperMessage
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.roster import FederatorKey, Revocation, Roster

N_INPUTS = 1000


def samples(federation):
    sent = [federation.contribute(client) for client in federation.clients(3)]
    requests = TOPICS.helper_requests("north")
    void = {"revoked": [Revocation(client_id="device-9", void_below=2)], "salt": bytes(32), "forgotten": [bytes(16)]}
    roster = Roster(federation=FEDERATION, version=2, through=1, **void)
    # Not signed by the operator below: with another key it would take no more requests from here.
    key = federation.federator.public
    statement = FederatorKey(federation=FEDERATION, sequence=1, old_key=key, new_key=key)
    return [
        Sample.of(federation.check(sent), requests, federation.federator),
        Sample.of(federation.check(sent[:1], first=3), requests, federation.federator),
        Sample.of(federation.open(sent), requests, federation.federator),
        Sample.of(federation.issue(version=2).policy, TOPICS.policy, federation.operator),
        Sample.of(roster, TOPICS.roster, federation.operator),
        Sample.of(statement, TOPICS.federator_key, federation.federator),
    ]


def test_bytes_of_any_kind_leave_a_helper_at_work(running, seed):
    """Thousands of wrong messages, most of them with a right signature; now and then there is something to answer."""
    federation, north = running(n_min=2)
    rng, seeds, n_answers = Random(seed), samples(federation), 0  # noqa: S311
    for _ in range(N_INPUTS):
        sample, payload = mutated(rng, seeds)
        for topic in {sample.topic, rng.choice(seeds).topic}:
            for answer in north.desk.handle(topic, payload):
                n_answers += 1
                assert len(answer) <= MAX_MESSAGE_BYTES
                assert isinstance(decode(answer, MESSAGE_TYPES[open_envelope(answer).kind]), HelperMessage)
    assert n_answers > N_INPUTS // 100
