"""A helper's real process at a real broker, asked by a test in the federator's place; killed wherever it can be."""

import asyncio
import contextlib
import sqlite3
import time
from dataclasses import replace

import pytest
from cli.commands import foltr
from integration.deployment import swept
from integration.whole import make_helper_keys, start_helper
from support.broker_links import Inbox, connected
from support.secure_cohorts import FEDERATION, HelperPair, SecureFederation
from support.waiting import PATIENCE_S

from foltr.core.errors import UnavailableError
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.codec import decode, encode, open_envelope
from foltr.core.protocol.helper_messages import CheckAnswer, CheckRequest, HelperRefusalCode, OpenAnswer, SetCommitment
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.signed_tickets import set_digest, ticket_hash
from foltr.core.protocol.topics import Topics
from foltr.core.secure.sealing import SealingKey

TOPICS = Topics(FEDERATION)
ASK_AGAIN_S = 1.0


class HelperProcess:
    """``foltr helper run`` for north; it makes its keys itself, and may be killed and started again."""

    def __init__(self, folder, url):
        self.folder = folder
        self.url = url
        self.process = None
        self.codes = []

    def prepare(self, **policy):
        """Make the federation whose policy names this helper and another one, which is not run."""
        self.federation = SecureFederation(2, dim=policy.pop("dim", 3))
        pair = HelperPair("north")
        keys = make_helper_keys(self.folder, self.federation, pair, self.url)
        with contextlib.closing(sqlite3.connect(self.store)) as db:
            made = db.execute("SELECT public, private FROM sealing_keys ORDER BY id").fetchall()
        self.epoch_keys = made[1:]
        if policy.pop("all_epochs", False):
            south = tuple(SealingKey.generate() for _ in keys.epoch_keys)
            self.federation.helpers[1] = replace(self.federation.helpers[1], epoch_keys=south)
        else:
            keys = keys.model_copy(update={"epoch_keys": keys.epoch_keys[:1]})
        self.federation.helpers[0] = PublicPair(keys, pair.signing_key)
        self.federation.policy = self.federation.issue(**policy)

    def start(self, failpoints=""):
        self.process = start_helper(self.folder, "north", failpoints)

    def restart_if_dead(self):
        if self.process.poll() is not None:
            self.codes.append(self.process.wait())
            self.start()

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def files(self):
        """The store's files as they are, also while the process runs."""
        return {file: file.read_bytes() for file in self.folder.glob(f"{self.store.name}*")}

    @property
    def store(self):
        return self.folder / f"{FEDERATION}-north.helper.sqlite"


class PublicPair:
    """A helper that keeps its sealing key to itself."""

    def __init__(self, keys, signing_key):
        self.name = keys.name
        self.public = keys
        self.signing_key = signing_key


class AskingFederator:
    """A federator as far as a helper knows: it asks, and asks again until it is answered."""

    def __init__(self, helper, link, inbox):
        self.helper = helper
        self.federation = helper.federation
        self.link = link
        self.inbox = inbox
        self.answers = []

    async def tell(self, request):
        topic = TOPICS.helper_requests("north")
        with contextlib.suppress(UnavailableError):  # it asks again
            await self.link.publish(topic, encode(request, topic, 7, self.federation.federator))

    async def ask(self, request):
        """The answer to a request; once the helper has committed itself to a set it is asked for the sum."""
        answer = await self.ask_once(request)
        if isinstance(answer, SetCommitment):
            return await self.ask_once(self.federation.agreed(request))
        return answer

    async def ask_once(self, request):
        """The answer to a request, in all its parts; the helper may die meanwhile, and is started again."""
        digest = set_digest(map(ticket_hash, request.tickets)) if isinstance(request, CheckRequest) else request.digest
        parts = {}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await self.tell(request)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ASK_AGAIN_S):
                        while True:
                            answer = self.take(await self.inbox.next(PATIENCE_S))
                            if answer.digest != digest:
                                continue
                            if isinstance(answer, SetCommitment) and getattr(request, "commitments", None):
                                continue  # to the question before
                            if not isinstance(answer, OpenAnswer):
                                return answer
                            parts[answer.start] = answer
                            if sum(len(part.values) for part in parts.values()) == 8 * answer.dim:
                                return [parts[start] for start in sorted(parts)]
                self.helper.restart_if_dead()

    def take(self, message):
        envelope = open_envelope(message.payload)
        assert envelope.is_signed_by(self.federation.helpers[0].signing_key.public, message.topic)
        answer = decode(message.payload, MESSAGE_TYPES[envelope.kind])
        if isinstance(answer, OpenAnswer):
            self.answers.append(message.payload)
        return answer


@pytest.fixture
async def asking(mosquitto_server, tmp_path):
    """A helper that is prepared and not started, and who asks it."""
    helper = HelperProcess(tmp_path, mosquitto_server.url)
    try:
        async with contextlib.AsyncExitStack() as stack:

            async def begin(failpoints="", **policy):
                helper.prepare(**policy)
                inbox = Inbox()
                topics = [TOPICS.helper_answers("+")]
                link = await stack.enter_async_context(connected(mosquitto_server.url, "federator", inbox, topics))
                federator = AskingFederator(helper, link, inbox)
                await link.publish(TOPICS.policy, helper.federation.policy.signed, retain=True)
                helper.start(failpoints)
                return federator, helper.federation

            begin.helper = helper
            yield begin
    finally:
        helper.close()


def contributions(federation, n_clients=5, **fields):
    return [federation.contribute(client, **fields) for client in federation.clients(n_clients)]


async def check_all(federator, federation, sent, page=256):
    for first in range(0, len(sent), page):
        answer = await federator.ask(federation.check(sent[first : first + page], first=first))
        assert isinstance(answer, CheckAnswer), answer
        assert answer.refused == []


DIES_AT = {
    Failpoint.IN_CHECK_TRANSACTION: 2,
    Failpoint.TICKETS_CHECKED: 2,
    Failpoint.IN_COMMITMENT_TRANSACTION: 1,
    Failpoint.SET_COMMITTED: 1,
    Failpoint.IN_OPENING_TRANSACTION: 1,
    Failpoint.SUM_OPENED: 1,
    Failpoint.HELPER_ANSWERED: 4,
}
USUAL = {(Failpoint.IN_CHECK_TRANSACTION,), (Failpoint.SET_COMMITTED,), (Failpoint.HELPER_ANSWERED,)}


@pytest.mark.parametrize("point", swept([(point,) for point in DIES_AT], USUAL))
async def test_kill_9_of_a_helper_costs_no_round(asking, point):
    """Started again it answers; and whatever it has said of a sum before, it says the same bytes again."""
    federator, federation = await asking(f"{point}=kill@{DIES_AT[point]}", dim=60_000)
    sent = contributions(federation)
    await check_all(federator, federation, sent, page=3)
    request = federation.open(sent)
    parts = await federator.ask(request)
    again = await federator.ask(request)
    assert asking.helper.codes == [-9]
    assert [part.values for part in parts] == [part.values for part in again]
    # Three parts, however often they came.
    assert len(set(federator.answers)) == 3
    with contextlib.closing(sqlite3.connect(asking.helper.store)) as db:
        assert db.execute("SELECT count(*), max(participation) FROM clients").fetchone() == (5, 1)


@pytest.mark.parametrize(
    "point", swept([(Failpoint.IN_DESTRUCTION_TRANSACTION,), (Failpoint.KEYS_DELETED,)], {(Failpoint.KEYS_DELETED,)})
)
async def test_kill_9_while_keys_are_destroyed_leaves_none_of_them(asking, point):
    """Of the epochs that are over by the helper's clock; started again it goes on with the key of the round's."""
    day = 86_400
    issued_at = time.time() - 3.5 * day
    federator, federation = await asking(f"{point}=kill", issued_at=issued_at, epoch_s=day, all_epochs=True)
    helper = asking.helper
    past = [private for _, private in helper.epoch_keys[:2]]
    sent = contributions(federation, epoch=3)
    answer = await federator.ask(federation.check(sent, epoch=3))
    assert isinstance(answer, CheckAnswer), answer
    assert answer.refused == []
    assert helper.codes == [-9]
    files = b"".join(helper.files().values())
    assert not [private for private in past if private in files]
    assert all(private in files for _, private in helper.epoch_keys[2:])


async def test_a_helper_whose_store_was_put_back_ends_with_what_to_do_next(asking):
    """The files, copied while rounds go on, are put back: it opens S without one of them for nobody, and says so."""
    federator, federation = await asking()
    sent = contributions(federation)
    await check_all(federator, federation, sent)
    helper = asking.helper
    copies = helper.files()
    assert isinstance((await federator.ask(federation.open(sent)))[0], OpenAnswer)
    helper.close()
    for file in helper.files():
        file.unlink()
    for file, content in copies.items():
        file.write_bytes(content)
    helper.start()
    refusal = await federator.ask(federation.open(sent, [0, 1, 2, 3]))
    assert refusal.code is HelperRefusalCode.STORE_RESTORED
    assert "signed a set of round 4" in refusal.detail
    assert await asyncio.to_thread(helper.process.wait, PATIENCE_S) == 2
    log = (helper.folder / "north.out").read_text()
    assert "store_restored" in log
    assert "foltr helper enrol north --replace" in log


async def test_a_helper_outlives_its_broker_and_ends_in_order(asking, mosquitto_server):
    """What it had checked it still knows; another process on its store is refused; SIGTERM ends it with code 0."""
    federator, federation = await asking()
    sent = contributions(federation)
    await check_all(federator, federation, sent)
    mosquitto_server.stop()
    mosquitto_server.start()
    await federator.link.wait_connected(PATIENCE_S)
    (part,) = await federator.ask(federation.open(sent))
    assert part.dim == 3
    second = foltr("helper", "run", "--credentials", "north.json", cwd=asking.helper.folder)
    assert second.returncode == 1
    assert "has it open" in second.stderr
    asking.helper.process.terminate()
    assert asking.helper.process.wait(PATIENCE_S) == 0
