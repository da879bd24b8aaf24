"""Whatever bytes a peer sends, nothing breaks: known failures first, then new inputs. ``make fuzz`` tries more."""

import gc
import logging
import os
import tracemalloc
from collections import Counter

import pytest
from fuzz.corpus import messages
from fuzz.run import FOUND, INPUTS_VARIABLE, Failure, failures, kept, targets_of
from fuzz.targets import TARGETS, BrokenPromiseError, examine

from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.messages import MESSAGE_TYPES

IS_NIGHTLY = "FOLTR_TEST_NIGHTLY" in os.environ
N_INPUTS = int(os.environ.get(INPUTS_VARIABLE) or (20_000 if IS_NIGHTLY else 2_000))


@pytest.fixture
def traced():
    """Memory is looked at, in a process that is not about to collect what earlier tests left."""
    logger = logging.getLogger("foltr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # of the clients
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    logger.setLevel(level)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("failure", kept(), ids=lambda failure: f"{failure.target}: {failure.reason:.40}")
def test_what_was_found_once_stays_mended(failure):
    """Every input in ``found/`` broke a promise when it was put there."""
    examine(failure.target, failure.payload)


@pytest.mark.usefixtures("traced")
def test_no_input_breaks_a_promise(seed):
    """New ones in every run, ten times as many in a night; FOLTR_TEST_SEED repeats those of a run that failed."""
    broken = [failure for _, failure in failures(seed, range(N_INPUTS), timed=IS_NIGHTLY) if failure is not None]
    causes = Counter(failure.cause for failure in broken)
    paths = [str(failure.keep(FOUND)) for failure in broken[:3]]
    assert not broken, f"{dict(causes)}; first: {broken[0].reason}; kept as {paths}"


def test_the_corpus_has_every_kind_and_all_of_it_is_valid():
    assert {sample.envelope["kind"] for sample in messages()} == set(MESSAGE_TYPES)
    for sample in messages():
        envelope = open_envelope(sample.payload)
        envelope.read(MESSAGE_TYPES[envelope.kind])
        assert sample.key is None or envelope.is_signed_by(sample.key.public, sample.topic)


@pytest.mark.usefixtures("traced")
def test_inputs_get_past_the_first_checks():
    """Some are decided on in every way there is; or this would be a fuzzing of the front door only."""
    from fuzz import targets

    reached = {"accepted", "joined", "left", "malformed", "bad_signature", "unsupported_version", "client_mismatch"}
    reached |= {"wrong_federation", "wrong_shape", "not_finite", "out_of_range", "unknown_client", "not_enrolled"}
    reached |= {"misplaced"}
    codes: Counter[str] = Counter()
    say = targets.check_text
    targets.check_text = lambda code, detail: (codes.update([str(code)]), say(code, detail))
    try:
        for sample in messages():
            for target in targets_of(sample):
                examine(target, sample.payload)
        for _ in failures(7, range(10_000)):
            if reached <= set(codes):
                break
    finally:
        targets.check_text = say
    assert reached <= set(codes), reached - set(codes)


def test_a_failure_is_kept_whole(tmp_path):
    failure = Failure("federator checked clients/device-7/updates", b"\x80", "ValueError: why")
    assert failure.keep(tmp_path).exists()
    assert kept(tmp_path) == [failure]


@pytest.mark.usefixtures("traced")
def test_a_broken_promise_is_noticed(monkeypatch):
    """An exception, an unprintable detail, too much memory or work: each is a failure."""
    from foltr.core.errors import MessageError

    def raises(_payload):
        raise KeyError("x")

    def hoards(payload):
        return [bytes(1000) for _ in range(10_000)] and payload

    def toils(payload):
        return sum(len(payload[:0]) for _ in range(20_000))

    for read, said in ((raises, "KeyError"), (hoards, "memory"), (toils, "work")):
        monkeypatch.setitem(TARGETS, "broken", read)
        with pytest.raises(BrokenPromiseError, match=said):
            examine("broken", b"")
    from fuzz import targets

    def mutters(_payload):
        targets.reader(lambda _: (_ for _ in ()).throw(MessageError("malformed", "\x1b[2J")), "", b"")

    monkeypatch.setitem(TARGETS, "broken", mutters)
    with pytest.raises(BrokenPromiseError, match="printable"):
        examine("broken", b"")
