"""Write the conformance vectors: what a client in another language must do to the byte, as this code does it.

    python clients/vectors/generate.py          # after a change of the protocol or of what a device learns
    python clients/vectors/generate.py --check  # only says whether they are up to date

Bytes are {"bytes": hexadecimal} and integers above 2^53 {"integer": decimal}: JSON has neither.
"""

import itertools
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray
from proof_vectors import evaluation_proofs, norm_proofs, vote_proofs
from recording_vectors import recordings
from report_vectors import reports

from foltr.core.errors import MessageError
from foltr.core.learning.credits import Credits
from foltr.core.learning.display import (
    interleaved_list,
    plackett_luce_log_odds,
    reversal_weights,
    sampled_list,
    sometimes_sampled_list,
    swapped_list,
)
from foltr.core.learning.gate import Gate, Source, interleaving_credits, with_list
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.linear import rank_by_score
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.fpdgd import FPDGD
from foltr.core.protocol.client_selection import is_selected, round_seed, ticket
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.explorations import (
    SAFE,
    InterleavingExploration,
    SamplingExploration,
    ShareExploration,
    SwapsExploration,
)
from foltr.core.protocol.fields import SCHEMA_VERSION, Message, payload_digest, unpack_vector
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.signing import SessionSequence, SigningKey, epoch_and_number, signed_bytes
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr.edge_client.options import Privacy

FOLDER = Path(__file__).parent
_KEY = SigningKey(bytes(range(32)))
_FIRST_SEQUENCE = 2**40
_LARGEST_EXACT = 2**53
_TOLERANCE = 1e-6
_TRAINING = PdgdTraining(learning_rate=0.1)


def as_json(value: Any) -> Any:
    """Return a value in the vectors' form of JSON."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, int) and not isinstance(value, bool) and value > _LARGEST_EXACT:
        return {"integer": str(value)}
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return value


def messages() -> dict[str, Any]:
    """Return every kind of message with all its fields set, as it is signed with a key that signs nothing else."""
    vectors = []
    for number, (name, message, topic) in enumerate(_captured()):
        payload = encode(message, topic, _FIRST_SEQUENCE + number, _KEY)
        envelope = open_envelope(payload)
        vectors.append(
            {
                "name": name,
                "kind": message.kind_name,
                "topic": topic,
                "sequence": str(envelope.sequence),
                "fields": as_json(message.model_dump()),
                "body": envelope.body.hex(),
                "signed": signed_bytes(topic, envelope.kind, envelope.sequence, envelope.body).hex(),
                "signature": envelope.signature.hex(),
                "payload": payload.hex(),
                "digest": payload_digest(payload).hex(),
            }
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "seed": bytes(range(32)).hex(),
        "public_key": _KEY.public.hex(),
        "messages": vectors,
    }


def refused() -> list[dict[str, str]]:
    """Return payloads that no side may read, with the receipt code that says why."""
    _, message, topic = _captured()[0]
    whole = encode(message, topic, _FIRST_SEQUENCE, _KEY)
    envelope = msgpack.unpackb(whole, raw=False)
    twice = b"\x85" + b"".join(msgpack.packb(part) for pair in list(envelope.items())[:4] for part in pair)
    cases: dict[str, bytes] = {
        "another version": msgpack.packb({**envelope, "v": envelope["v"] + 1}),
        "no version": msgpack.packb({key: value for key, value in envelope.items() if key != "v"}),
        "one key more": msgpack.packb({**envelope, "extra": 1}),
        "one key less": msgpack.packb({key: value for key, value in envelope.items() if key != "sequence"}),
        "a key twice": twice + msgpack.packb("v") + msgpack.packb(envelope["v"]),
        "a body twice": b"\x86" + whole[1:] + msgpack.packb("body") + msgpack.packb(b""),
        "a short signature": msgpack.packb({**envelope, "signature": b"short"}),
        "a negative sequence": msgpack.packb({**envelope, "sequence": -1}),
        "a sequence of 64 bits": msgpack.packb({**envelope, "sequence": 2**63}),
        "a text for a body": msgpack.packb({**envelope, "body": "text"}),
        "a list": msgpack.packb([1, 2, 3]),
        "cut short": whole[:-3],
        "bytes behind it": whole + b"\x00",
        "nothing": b"",
    }
    return [{"what": what, "payload": payload.hex(), "code": _code_of(payload)} for what, payload in cases.items()]


def learning() -> list[dict[str, Any]]:
    """Return steps of a linear ranker: lists drawn by other weights than those that learn from them, too.

    Models of zeros imitate the list as it was shown.
    """
    rng = np.random.default_rng(16)
    cases = []
    for n_documents, n_features, shown, spread in ((6, 3, 6, 1), (12, 5, 10, 1), (40, 8, 10, 8), (5, 2, 3, 300)):
        for _ in range(6):
            features = rng.random((n_documents, n_features), np.float32)
            base = (rng.standard_normal(n_features) * spread).astype(np.float32)
            drawn_by = np.round(rng.standard_normal(n_documents) * spread, 3).astype(np.float32)
            ranking = rng.permutation(n_documents)[:shown]
            clicks = rng.random(shown) < 0.4
            reversals = reversal_weights(plackett_luce_log_odds(drawn_by, ranking)[1])
            learned = _learned(base, Interaction(1, features, ranking, clicks, reversals=reversals), rng)
            cases.append(
                {
                    "base": base.tolist(),
                    "features": features.tolist(),
                    "ranking": ranking.tolist(),
                    "clicks": clicks.tolist(),
                    "drawn_by": drawn_by.tolist(),
                    "learning_rate": 0.1,
                    **learned,
                }
            )
    context = DeviceContext(1, shows_base=True)
    for n_documents, shown in ((4, 4), (12, 10), (70, 60)):
        features, ranking = rng.random((n_documents, 5), np.float32), rng.permutation(n_documents)[:shown]
        first, second = (Interaction(at, features, ranking, np.zeros(shown, np.bool_)) for at in (1, 2))
        device = FPDGD.device(_TRAINING, LinearRankerSpec(n_features=5), np.zeros(5, np.float32), 1, context)
        device.learn(first, rng)
        device.learn(second, rng)
        cases.append(
            {
                "base": [0.0] * 5,
                "features": features.tolist(),
                "ranking": ranking.tolist(),
                "imitated": 2,
                "learning_rate": _TRAINING.learning_rate,
                "weights": device.weights.tolist(),
            }
        )
    return cases


def lists() -> list[dict[str, Any]]:
    """Return lists that each exploration has drawn, with their log-probability and reversals."""
    rng = np.random.default_rng(17)
    cases = []
    for k in (1, 4, 5, 10):
        scores, base = (np.round(rng.standard_normal(k + 2), 3).astype(np.float32) for _ in range(2))
        best, of_base = rank_by_score(scores, k), rank_by_score(base, k)
        drawn = [
            (ShareExploration(share=0.3, temperature=0.5), sometimes_sampled_list(scores, k, rng, 0.3, 0.5)),
            (ShareExploration(share=1.0, temperature=0.5), sometimes_sampled_list(scores, k, rng, 1.0, 0.5)),
            (SwapsExploration(probability=0.5), swapped_list(best, rng, 0.5)),
            (SwapsExploration(probability=0.05), swapped_list(best, rng, 0.05)),
            (InterleavingExploration(), interleaved_list(best, of_base, rng)[0]),
            (SamplingExploration(), sampled_list(scores, k, rng)),
            (SamplingExploration(temperature=0.7), sampled_list(scores, k, rng, 0.7)),
        ]
        for exploration, shown in drawn:
            case = {"exploration": exploration.model_dump(), "scores": scores.tolist(), "base": base.tolist()}
            told = {"log_probability": float(shown.log_probability), "reversals": shown.reversals.tolist()}
            cases.append({**case, "ranking": shown.ranking.tolist(), **told})
    return cases


def gate() -> list[dict[str, Any]]:
    """Return the lists that one user was shown, the gate after each, and of interleaved ones whose credit a click is.

    The user wants one document, which the model has first, then last, then first, and at last in no list at all: the
    gate opens, closes by the credits, opens, and closes by what the model's lists bring.
    """
    rng = np.random.default_rng(31)
    now, cases = Gate(), []
    for number in range(265):
        base, model = rng.permutation(6), rng.permutation(6)
        wanted = int(model[-1] if 40 <= number < 150 else model[0])
        source = Source.MODEL if now.is_open else Source.BASE
        if 40 <= number < 150 or (12 <= number < 205 and number % 5):
            source = Source.INTERLEAVED
        shown, to_credit, interleaved = {Source.BASE: base, Source.MODEL: model}.get(source, base)[:5], None, {}
        if source is Source.INTERLEAVED:
            if number % 10 == 1:
                model = np.concatenate([base[:3], base[:2:-1]])  # both begin alike
            drawn, by_model = interleaved_list(model[:5], base[:5], rng)
            shown, to_credit = drawn.ranking, interleaving_credits(by_model, base, model)
            orders = {"base": base.tolist(), "model": model.tolist()}
            interleaved = {"by_model": by_model.tolist(), **orders, "to_credit": to_credit.tolist()}
        misses = rng.random() < 0.1 or (number >= 235 and source is Source.MODEL)
        clicks = np.zeros(5, np.bool_) if misses else shown == wanted
        now = with_list(now, source, clicks, to_credit)
        cases.append({"source": str(source), "clicks": clicks.tolist(), **interleaved, "gate": _told(now)})
    return cases


def shared_gates() -> list[dict[str, Any]]:
    """Return what all users' credits are, and what a gate says after each list of a user who has them announced.

    They say that the model is worse, no better, or better; the own lists favour it or the other order, or say nothing.
    Each once with a weak base, and once with a base whose first document is clicked nine times in ten.
    """
    cases = []
    told_and_own = ((-20.0, 0), (-2.0, 1), (0.0, 1), (0.0, -1), (4.0, 0), (25.0, 1), (25.0, -1), (25.0, 0))
    for (total, own), is_good in itertools.product(told_and_own, (False, True)):
        now, lists = Gate(shared=Credits(total, 40.0)), []
        for number in range(90):
            source = Source.MODEL if now.is_open else Source.BASE
            if own and number % (8 if is_good else 15) == 4:
                source = Source.INTERLEAVED
            to_credit = np.full(4, own, np.int8) if source is Source.INTERLEAVED else None
            place = (3 if number % 10 == 9 else 0) if is_good else number % 5
            clicks = np.arange(4) == (place if source is not Source.MODEL or number < 80 else 4)
            now = with_list(now, source, clicks, to_credit)
            told = {"source": str(source), "clicks": clicks.tolist(), "to_credit": None}
            if to_credit is not None:
                told["to_credit"] = to_credit.tolist()
            lists.append({**told, "is_open": now.is_open, "share_interleaved": now.share_interleaved})
        cases.append({"shared": {"total": total, "squares": 40.0}, "lists": lists})
    return cases


def schemas() -> list[dict[str, Any]]:
    """Return feature schemas, the hash that names each, and candidates before and after scaling."""
    rng = np.random.default_rng(18)
    every = [
        Feature(name="price in euros", scaling="min_max", low=-2.5, high=500.0),
        Feature(name="bm25", scaling="log", high=40.0),
        Feature(name="clicks/view", scaling="ratio"),
        Feature(name="age", scaling="per_query"),
    ]
    cases = []
    for name, features in (("shop", every), ("a", every[3:])):
        schema = FeatureSchema(name=name, version=3, features=features)
        matrix = np.round(rng.standard_normal((5, schema.n_features)) * 60, 3)
        if name == "a":
            matrix[:] = 7.0  # no candidate differs from another
        case = {"schema": json.loads(schema.to_json()), "hash": schema.hash.hex(), "candidates": matrix.tolist()}
        cases.append({**case, "scaled": schema.normalise(matrix).tolist()})
    return cases


def selections() -> list[dict[str, Any]]:
    """Return tickets of rounds, and whether a cutoff asks the client."""
    cases = []
    for round_number, client_id in ((1, "device-7"), (2, "device-7"), (70_000, "browser_1"), (2**31 - 1, "a.b-c")):
        seed = round_seed(bytes(range(32)), round_number)
        mine = ticket(seed, client_id)
        for cutoff in (mine, bytes(8), b"\xff" * 8, mine[:7] + b"\x00"):
            asked = is_selected(seed, cutoff, client_id)
            case = {"first_seed": bytes(range(32)).hex(), "round": round_number, "client_id": client_id}
            cases.append({**case, "ticket": mine.hex(), "cutoff": cutoff.hex(), "selected": asked})
    return cases


def sequences() -> dict[str, Any]:
    """Return how sequence numbers are taken apart and put together."""
    source = SessionSequence(2**44)  # later than any clock here
    session = source.begin_session()
    numbers = [source.next(), source.next(), source.last_will()]
    epochs = [2**40 + 5, (1_700_000_000 << 30) + 12]
    return {
        "newest_session": str(2**44),
        "session": str(session),
        "numbers": [str(number) for number in numbers],
        "epochs": [{"sequence": str(each), "parts": [str(part) for part in epoch_and_number(each)]} for each in epochs],
    }


def receipt_codes() -> dict[str, Any]:
    """Return what a device does with each code of an answer."""
    return {
        str(code): {"reaction": None if code.reaction is None else str(code.reaction), "joins_first": code.joins_first}
        for code in ReceiptCode
    }


def defaults() -> dict[str, Any]:
    """Return what a device does before a federation says otherwise."""
    privacy, training = Privacy(), PdgdTraining()
    return {
        "exploration": SAFE.model_dump(),
        "serp_length": training.serp_length,
        "click_window_s": privacy.click_window_s,
    }


VECTORS: dict[str, Callable[[], Any]] = {
    "messages.json": messages,
    "refused.json": refused,
    "learning.json": learning,
    "lists.json": lists,
    "gate.json": gate,
    "shared_gates.json": shared_gates,
    "recordings.json": lambda: recordings(_told),
    "reports.json": lambda: reports(_told),
    "schemas.json": schemas,
    "selections.json": selections,
    "sequences.json": sequences,
    "norm_proofs.json": lambda: as_json(norm_proofs()),
    "vote_proofs.json": vote_proofs,
    "evaluation_proofs.json": evaluation_proofs,
    "receipt_codes.json": receipt_codes,
    "defaults.json": defaults,
}


def is_current(name: str) -> bool:
    """Whether a file of vectors is what this code makes now; learned weights to 1e-6, as they differ by processor."""
    path = FOLDER / name
    return path.exists() and _is_same(json.loads(path.read_text()), json.loads(_text_of(VECTORS[name]())))


def _is_same(stored: Any, made: Any) -> bool:
    if isinstance(stored, dict) and isinstance(made, dict):
        return stored.keys() == made.keys() and all(_is_same(stored[key], made[key]) for key in stored)
    if isinstance(stored, list) and isinstance(made, list):
        return len(stored) == len(made) and all(_is_same(*pair) for pair in zip(stored, made, strict=True))
    if isinstance(stored, float) and isinstance(made, float):
        return math.isclose(stored, made, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return type(stored) is type(made) and bool(stored == made)


def _text_of(vectors: Any) -> str:
    """Return JSON with a line for each case."""
    if isinstance(vectors, list):
        return "[\n" + ",\n".join(json.dumps(each) for each in vectors) + "\n]"
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_text_of_value(each)}" for key, each in vectors.items()) + "\n}"


def _text_of_value(value: Any) -> str:
    return _text_of(value) if isinstance(value, list) else json.dumps(value)


def _told(gate: Gate) -> dict[str, Any]:
    """Return a gate and all that it says."""
    means = {name: getattr(gate, name)._asdict() for name in ("credits", "of_base", "of_model")}
    counts = {str(source): gate.count(source)._asdict() for source in Source}
    scores = {"credit_score": gate.credit_score, "model_score": gate.model_score}
    return {"is_open": gate.is_open, **means, "counts": counts, **scores, "share_interleaved": gate.share_interleaved}


def _code_of(payload: bytes) -> str:
    try:
        open_envelope(payload)
    except MessageError as error:
        return str(error.code)
    raise AssertionError("it is to be refused")


def _learned(base: NDArray[np.float32], interaction: Interaction, rng: np.random.Generator) -> dict[str, Any]:
    device = FPDGD.device(_TRAINING, LinearRankerSpec(n_features=len(base)), base, 1, DeviceContext(1))
    device.learn(interaction, rng)
    body = device.body(rng)
    return {"weights": device.weights.tolist(), "delta": unpack_vector(body.model_dump()["values"]).tolist()}


def _captured() -> list[tuple[str, Message, str]]:
    """Return each message of messages.json with its name and topic, from its fields; a new one is added there."""
    vectors = json.loads((FOLDER / "messages.json").read_text())["messages"]
    return [
        (each["name"], MESSAGE_TYPES[each["kind"]].model_validate(_from_json(each["fields"])), each["topic"])
        for each in vectors
    ]


def _from_json(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"bytes"}:
        return bytes.fromhex(value["bytes"])
    if isinstance(value, dict) and value.keys() == {"integer"}:
        return int(value["integer"])
    if isinstance(value, dict):
        return {key: _from_json(each) for key, each in value.items()}
    return [_from_json(each) for each in value] if isinstance(value, list) else value


def main(arguments: list[str]) -> int:
    """Write the vectors, or with ``--check`` name those that are not what this code makes."""
    stale = [name for name in VECTORS if not is_current(name)]
    for name in stale:
        if "--check" in arguments:
            sys.stderr.write(f"{name} is not what the code makes; run: python clients/vectors/generate.py\n")
        else:
            (FOLDER / name).write_text(_text_of(VECTORS[name]()) + "\n")
    return len(stale) if "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
