"""Helpers at their desks, each with a store in a file: tests ask them as a federator does."""

from dataclasses import replace

from support.secure_cohorts import FEDERATION, HelperPair

from foltr.core.protocol.codec import decode, encode, open_envelope
from foltr.core.protocol.helper_messages import SetCommitment
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.topics import Topics
from foltr.helper.measures import HelperMeasures
from foltr.helper.request_handler import RequestHandler
from foltr.helper.store import HelperStore

TOPICS = Topics(FEDERATION)


class Running:
    """A helper that made its own sealing key, before there was a policy; it may be killed and started again."""

    def __init__(self, folder, name, n_epochs=0):
        self.path = folder / f"{name}.sqlite"
        self.pair = HelperPair(name)
        self.n_epochs = n_epochs
        self.now = 1000.0  # when policies are issued
        self.store = HelperStore(self.path, f"{FEDERATION}/{name}", exclusive=True)
        self.make_key()

    def make_key(self):
        sealing_key, epoch_keys = self.store.make_sealing_keys(self.n_epochs)
        keys = tuple(map(self.store.sealing_key, epoch_keys))
        self.pair = replace(self.pair, sealing_key=self.store.sealing_key(sealing_key), epoch_keys=keys)

    def start(self, federation):
        self.credentials = federation.credentials(self.pair)
        self.measures = HelperMeasures(FEDERATION, self.pair.name)
        self.desk = RequestHandler(self.credentials, self.store, measures=self.measures, now=lambda: self.now)
        self.hear(TOPICS.policy, federation.policy.signed)

    def restart(self):
        self.store.close()
        self.store = HelperStore(self.path, f"{FEDERATION}/{self.pair.name}", exclusive=True)
        self.desk = RequestHandler(self.credentials, self.store, now=lambda: self.now)

    def tick(self):
        self.desk.noise.tick()
        self.desk.noise.release()

    def hear(self, topic, payload):
        assert self.desk.handle(topic, payload) == []

    def ask_raw(self, request, key):
        self.tick()
        topic = TOPICS.helper_requests(self.pair.name)
        return self.desk.handle(topic, encode(request, topic, 7, key))

    def ask(self, federation, request):
        """The answers, each signed by this helper, which is asked for the sum once it is committed to a set."""
        answers = self.ask_once(federation, request)
        if answers and isinstance(answers[0], SetCommitment):
            return self.ask_once(federation, federation.agreed(request))
        return answers

    def ask_once(self, federation, request):
        answers = []
        for payload in self.ask_raw(request, federation.federator):
            envelope = open_envelope(payload)
            assert envelope.is_signed_by(self.pair.signing_key.public, TOPICS.helper_answers(self.pair.name))
            answers.append(decode(payload, MESSAGE_TYPES[envelope.kind]))
        return answers


def contributions(federation, n_clients=3, **fields):
    return [federation.contribute(client, **fields) for client in federation.clients(n_clients)]
