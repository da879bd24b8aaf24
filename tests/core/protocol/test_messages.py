"""Messages: what a field may hold, and what a device does with every receipt code."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import ValidationError
from support.wire_messages import MESSAGES

from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement, Selection
from foltr.core.protocol.fields import CHUNK_BYTES, MAX_CHUNKED_BYTES, MAX_DIM, pack_vector, unpack_vector
from foltr.core.protocol.membership import Enrolment, Join, Leave, Status
from foltr.core.protocol.orders import (
    AllowReset,
    ForgetClient,
    LiftQuarantine,
    QuarantineClient,
    RevokeClient,
    RotateEnrolmentKey,
    RotateKey,
    SetDeadline,
)
from foltr.core.protocol.receipts import DeviceReaction, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.roster import Roster
from foltr.core.protocol.trainings import (
    EvolutionTraining,
    FedAvgTraining,
    FedIpsTraining,
    FedPerTraining,
    FedProxTraining,
    FpdgdPaperTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
    PdgdTraining,
    PersonalTraining,
)
from foltr.core.protocol.updates import (
    MAX_PROOF_BYTES,
    Chunk,
    DenseDelta,
    EvolutionPair,
    Manifest,
    MaskedVector,
    PartDelta,
)


def test_no_code_decides_what_counts():
    """The watermark does: a code says why, and whether the same update may be sent again or the device is to stop."""
    by_reaction = {reaction: {code for code in ReceiptCode if code.reaction is reaction} for reaction in DeviceReaction}
    assert by_reaction[DeviceReaction.SEND_AGAIN] == {
        ReceiptCode.BUSY,
        ReceiptCode.INCOMPLETE,
        ReceiptCode.UNKNOWN_CLIENT,
        ReceiptCode.NOT_ENROLLED,
        ReceiptCode.UNSUPPORTED_VERSION,
    }
    assert by_reaction[DeviceReaction.STOP] == {ReceiptCode.ERASING, ReceiptCode.FORGETTING, ReceiptCode.FORGOTTEN}
    assert {code for code in ReceiptCode if code.joins_first} == {ReceiptCode.UNKNOWN_CLIENT, ReceiptCode.NOT_ENROLLED}
    others = {ReceiptCode.JOINED, ReceiptCode.LEFT, ReceiptCode.UNKNOWN_JOB}
    assert {code for code in ReceiptCode if code.reaction is None} == others


def test_a_model_has_the_weights_of_its_ranker_and_what_only_training_uses():
    """Two hidden units on three features have 2 (3 + 2) weights, 2 (3 + 1) of them hidden; proofs are whole words."""
    ranker = NeuralRankerSpec(n_features=3, hidden=2)
    assert (ranker.n_weights, ranker.n_base_weights) == (2 * (3 + 2), 2 * (3 + 1))
    model = {"federation": "mail", "version": 1, "ranker": ranker, "n_auxiliary": 4}
    assert ModelAnnouncement(**model, weights=bytes(4 * (10 + 4))).n_auxiliary == 4
    with pytest.raises(ValidationError, match=f"expected {4 * (10 + 4)}"):
        ModelAnnouncement(**model, weights=bytes(4 * 10))
    with pytest.raises(ValidationError, match=f"at most {MAX_DIM}"):
        NeuralRankerSpec(n_features=MAX_DIM // 2, hidden=2)
    # Of two million numbers: four squares, 96 masks, L first values and 2P - 1 of G, with P = 1,024; then of votes, an
    # evaluation and credits.
    assert MAX_PROOF_BYTES == 8 * (4 + 96 + 1956 + 2 * 1024 - 1 + 15 + 4)
    masked = {"dim": 2, "values": bytes(16), "ticket": b"ticket"}
    for n_bytes, words in [(7, "whole words"), (15, "whole words"), (MAX_PROOF_BYTES + 8, "at most")]:
        assert MaskedVector(**masked, proof=bytes(MAX_PROOF_BYTES)).proof, (n_bytes, words)
        with pytest.raises(ValidationError, match=words):
            MaskedVector(**masked, proof=bytes(n_bytes))


NAN, INF = float("nan"), float("inf")
TRAINING = {"serp_length": [0, 1001], "min_interactions": [0, 6], "max_interactions": [4, 100_001]}
STEP = {"learning_rate": [0.0, NAN, INF]}
POLICY = {"server_learning_rate": [0.0, INF], "logging_policy": [bytes(65_537), "x"]}
CLIENT = {"federation": "mail", "client_id": "device-7"}
KEYS = {"federation": "mail", "sequence": 1, "old_key": bytes(32), "new_key": bytes(32)}
ROSTER = {"federation": "mail", "version": 1, "through": 0, "revoked": [], "salt": bytes(32), "forgotten": []}
BUSY = {**CLIENT, "update_id": None, "code": ReceiptCode.BUSY, "retry_after_s": 86_400.0}
MANIFEST = {**CLIENT, "digest": bytes(32), "size": CHUNK_BYTES + 1, "n_chunks": 2}
ENROLMENT = {**CLIENT, "public_key": bytes(32), "serial": 1, "issued_at": 0.0}
PAIR = {"seed": 1, "plus": 0.0, "minus": 1.0}
SELECTION = {"first_seed": bytes(32), "cutoff": bytes(8), "n_selected": 1, "n_eligible": 1}
JOINED = {**CLIENT, "code": ReceiptCode.JOINED}
# Of each kind: what is right, and for each field what is not.
BOUNDS = [
    (PdgdTraining, {}, TRAINING | STEP),
    (FpdgdPaperTraining, {"n_clients": 2}, STEP | {"sensitivity": [0.0, INF], "epsilon": [0.0, INF], "n_clients": [0]}),
    (FedProxTraining, {}, TRAINING | STEP | {"mu": [-0.1, 101.0, NAN]}),
    (FedPerTraining, {}, TRAINING | STEP),
    (PersonalTraining, {}, TRAINING | STEP | {"personal_learning_rate": [0.0, NAN]}),
    (EvolutionTraining, {}, TRAINING | {"noise_scale": [0.0, NAN], "truth_probability": [0.0, 1.1], "antithetic": [1]}),
    (FedIpsTraining, {}, TRAINING | STEP | POLICY | {"propensities": ["unknown", None], "position_bias": [-0.1, 11.0]}),
    (FedIpsTraining, {}, {"relevance_learning_rate": [0.0, INF]}),
    (FedAvgTraining, {}, TRAINING | STEP | POLICY),
    (PartDelta, {"dim": 3, "start": 1, "values": bytes(8)}, {"dim": [2], "start": [-1, 2], "values": [b"", bytes(7)]}),
    (EvolutionPair, PAIR, {"seed": [-1, 2**63], "plus": [1.1, None], "minus": [-0.1]}),
    (UpdateReceipt, BUSY, {"retry_after_s": [-1.0, 86_401.0], "missing": [[-1], [1000], [0] * 1001, 0]}),
    (Manifest, MANIFEST, {"size": [0, MAX_CHUNKED_BYTES + 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 1], "n_chunks": [0, 1, 3]}),
    (Chunk, {**CLIENT, "digest": bytes(32), "index": 0, "data": b"x"}, {"data": [b"", bytes(CHUNK_BYTES + 1), "x"]}),
    (Enrolment, ENROLMENT, {"client_id": ["a/b"], "serial": [0, 2**31, True], "issued_at": [-1.0, NAN]}),
    (Enrolment, ENROLMENT, {"public_key": [bytes(31), bytes(33), "0" * 32]}),
    (Roster, ROSTER, {"version": [0, 2**31], "revoked": [[{"client_id": "a", "void_below": 1}]], "salt": [bytes(31)]}),
    (Roster, ROSTER, {"through": [-1, 2**31], "forgotten": [None, [bytes(15)]]}),
    (RevokeClient, {**CLIENT, "void_below": 2}, {"void_below": [1, 2**31]}),
    (ForgetClient, {**CLIENT, "serial": 0}, {"serial": [-1, 2**31, None]}),
    *((kind, KEYS, {"sequence": [0, 2**31], "old_key": [bytes(31)]}) for kind in (RotateKey, RotateEnrolmentKey)),
    (SetDeadline, {"federation": "mail", "round": 1, "max_time_s": 1.0}, {"max_time_s": [0.0, INF, 30 * 86_400 + 1.0]}),
    (AllowReset, {"federation": "mail", "job": 1}, {"job": [0, 2**31]}),
    (QuarantineClient, {**CLIENT, "reason": "x"}, {"reason": [None, "", "x" * 501, "two\nlines", "\x1b[31m"]}),
    (LiftQuarantine, {**CLIENT}, {"client_id": [None, "a/b"]}),
    (Join, {**CLIENT, "sdk_version": "1"}, {"enrolment": [bytes(1025), "x"]}),
    (Selection, SELECTION, {"cutoff": [bytes(7), bytes(9), 1], "n_selected": [-1, 2**31]}),
    (MembershipReceipt, JOINED, {"payload_digest": [bytes(15), bytes(17)], "newest_sequence": [-1, 2**63, True]}),
]


def test_messages_and_bodies_refuse_what_is_out_of_bounds():
    """Exact sizes of keys and digests, and no training that cannot work: steps of zero, lists of nothing."""
    for kind, right, wrong in BOUNDS:
        assert kind(**right)
        for field, value in [(field, value) for field, values in wrong.items() for value in values]:
            with pytest.raises(ValidationError):
                kind(**{**right, field: value})


def test_messages_are_frozen_and_know_all_their_fields():
    """A misspelt field is an error; nothing that means something to MQTT, a file system or a terminal is in a name."""
    status = Status(federation="mail", client_id="device-7", online=True)
    with pytest.raises(ValidationError):
        status.online = False
    with pytest.raises(ValidationError):
        Status(federation="mail", client_id="device-7", online=True, onlin=False)
    with pytest.raises(ValidationError):
        Status(federation="mail", client_id="device-7", online=1)
    for name in ["", "-a", ".a", "a/b", "a+", "#", "a b", "a\n", "a\x00", "ä", "a" * 65, "_a", "a\tb", "$SYS"]:
        with pytest.raises(ValidationError):
            Leave(federation="mail", client_id=name)
        with pytest.raises(ValidationError):
            Leave(federation=name, client_id="device-7")
    for name in ["a", "7", "A.b_c-9", "a" * 64]:
        assert Leave(federation=name, client_id=name).client_id == name, name


@settings(derandomize=True)
@given(hnp.arrays(np.float32, st.integers(1, 50), elements=st.floats(width=32, allow_nan=False)))
def test_a_vector_survives_the_wire(values):
    """Packing and unpacking is the identity, and the view cannot be written through."""
    packed = pack_vector(values)
    assert len(packed) == 4 * len(values)
    unpacked = unpack_vector(packed)
    np.testing.assert_array_equal(unpacked, values)
    assert not unpacked.flags.writeable


def test_a_vector_is_little_endian_float32_wherever_it_comes_from():
    """Of any type, byte order or layout; another length than it says is refused, however close."""
    expected = bytes.fromhex("0000803f000020c0")
    for array in ([1.0, -2.5], np.array([1.0, -2.5], ">f8"), np.array([1.0, 9.0, -2.5, 9.0])[::2]):
        assert pack_vector(array) == expected
    for n_bytes in [0, 3, 4, 7, 9, 12]:
        with pytest.raises(ValidationError, match="expected 8"):
            DenseDelta(dim=2, values=bytes(n_bytes))
        with pytest.raises(ValidationError, match="expected 8"):
            ModelAnnouncement(
                federation="mail", version=1, ranker=LinearRankerSpec(n_features=2), weights=bytes(n_bytes)
            )


def test_a_round_that_is_open_is_not_the_last_that_was():
    """Clients wait for the next round by that, so the two contradict each other."""
    announced = next(message for message, _ in MESSAGES if isinstance(message, RoundAnnouncement)).model_dump()
    assert RoundAnnouncement(**announced | {"open": False, "last": True}).last
    assert not RoundAnnouncement(**announced | {"open": True, "last": False}).last
    with pytest.raises(ValidationError, match="cannot be marked last"):
        RoundAnnouncement(**announced | {"open": True, "last": True})
