"""Ten pages of Chromium learn from their visitors, and what leaves them is the protocol's, with nothing of a search."""

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgpack
import pytest
from support.mqtt_packets import PacketType, Published, published_in, read_packets
from support.waiting import PATIENCE_S

from foltr.core.protocol.codec import decode, encode, open_envelope
from foltr.core.protocol.membership import Join
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.updates import ModelUpdate

PROJECT = Path(__file__).parents[3]
EXAMPLE = PROJECT / "examples" / "docs_search"
VISITORS, ROUNDS, SEARCHES = 10, 5, 5
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SENT_TO = re.compile(r"foltr/v1/docs-search/clients/visitor-\d+/(join|status|updates)")
SHORTEST = 5
"""Of what is searched for: fewer bytes than that may be in a signature by chance."""


@dataclass(frozen=True)
class Visit:
    """What visit.mjs wrote: figures, streams and requests of each page, and texts of which nothing may leave."""

    results: dict[str, Any]
    pages: list[tuple[list[bytes], list[dict[str, str]]]]
    private: set[bytes]

    @property
    def streams(self) -> list[bytes]:
        return [stream for streams, _ in self.pages for stream in streams]


@pytest.fixture(scope="module")
def visit(tmp_path_factory) -> Visit:
    """The README's command, with fewer rounds."""
    skip_without_browser()
    folder = tmp_path_factory.mktemp("visit")
    (command,) = (line for line in readme_commands() if "visit.mjs" in line)
    words = ["--rounds", ROUNDS, "--sent", folder / "sent.json", "--png", folder / "page.png"]
    words += ["--python", sys.executable]
    command = [*shlex.split(command.replace("results.json", str(folder / "results.json"))), *map(str, words)]
    # Ten pages of a browser share the processor with all else.
    run_within(command, timeout_s=2 * PATIENCE_S)
    sent = json.loads((folder / "sent.json").read_text())
    assert (folder / "page.png").read_bytes().startswith(b"\x89PNG")
    pages = [([stream_of(frames) for frames in page["connections"]], page["requests"]) for page in sent["sent"]]
    return Visit(json.loads((folder / "results.json").read_text()), pages, private_in(sent["queries"], sent["texts"]))


def run_within(command: list[str], timeout_s: float) -> None:
    """Run it to its end; one that takes too long is asked to end, so that Chromium ends with it."""
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        _, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        _, errors = process.communicate()
        pytest.fail(f"not over after {timeout_s} s: {errors}")
    assert process.returncode == 0, errors


def skip_without_browser() -> None:
    missing = [
        what
        for what, is_there in {
            "Node.js": shutil.which("node") is not None,
            "Chromium (make chromium)": any(map(shutil.which, BROWSERS)) or "CHROMIUM" in os.environ,
            "packages in clients/browser (make browser-test)": (PROJECT / "clients/browser/node_modules").is_dir(),
            "packages in examples/docs_search (make browser-test)": (EXAMPLE / "node_modules").is_dir(),
        }.items()
        if not is_there
    ]
    if missing:
        pytest.skip(f"the documentation was not searched in a browser, without {' and '.join(missing)}")


def readme_commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (EXAMPLE / "README.md").read_text(), flags=re.DOTALL)
    return "".join(blocks).splitlines()


def stream_of(frames: list[str]) -> bytes:
    return b"".join(base64.b64decode(frame) for frame in frames)


def private_in(queries: list[str], texts: list[str]) -> set[bytes]:
    """Return all that must not leave: also each sentence of a text."""
    sentences = {sentence for text in texts for sentence in re.split(r"(?<=[.:;!?])\s+", text)}
    return {text.encode() for text in {*queries, *texts, *sentences} if len(text.encode()) >= SHORTEST}


def leaks(private: set[bytes], streams: list[bytes]) -> set[bytes]:
    """Return what of the private texts is in a stream or its messages, except the protocol's own words."""
    published = [message for stream in streams for message in messages_in(stream)]
    haystack = b"\n".join([*streams, *(text for message in published for text in held_by(msgpack_of(message)))])
    own_words = {word for stream in streams for word in words_of_topics(stream)}
    # A number after one of these words may read as its punctuation.
    return {text for text in private if text in haystack and text.lower().rstrip(b".,;:!?)") not in own_words}


def messages_in(stream: bytes) -> list[Published]:
    return [message for packet in read_packets(stream) if (message := published_in(packet)) is not None]


def msgpack_of(message: Published) -> Any:
    """Return a message with its body unpacked, whatever it is."""
    fields = msgpack.unpackb(message.payload)
    return {**fields, "body": msgpack.unpackb(fields["body"])}


def held_by(value: Any) -> list[bytes]:
    """Return the texts and byte strings in a value, keys and inner maps too."""
    match value:
        case dict():
            return [text for pair in value.items() for each in pair for text in held_by(each)]
        case list():
            return [text for each in value for text in held_by(each)]
        case str():
            return [value.encode()]
        case bytes():
            return [value]
        case _:
            return []


def words_of_topics(stream: bytes) -> set[bytes]:
    """Return the words in what is subscribed to."""
    subscribed = b" ".join(packet.rest for packet in read_packets(stream) if packet.type == PacketType.SUBSCRIBE)
    return set(re.findall(rb"[a-z]+", subscribed))


def test_the_order_learned_is_better_than_minisearchs(visit):
    """On queries for sections that nobody asked for; a first model ranks as MiniSearch does."""
    results = visit.results
    assert (results["visitors"], results["rounds"], results["searches"]) == (
        VISITORS,
        ROUNDS,
        VISITORS * ROUNDS * SEARCHES,
    )
    assert results["queries_to_judge_by"] > 100
    assert 0.6 < results["minisearch_mrr_at_10"] == results["first_model_mrr_at_10"]
    assert results["learned_mrr_at_10"] > results["minisearch_mrr_at_10"] + 0.03


def test_all_that_leaves_a_page_are_messages_of_the_protocol(visit):
    """Joins, states and an update a round, a number for each feature, and nothing but MQTT around them."""
    names = set()
    for streams, _ in visit.pages:
        for stream in streams:
            types = [packet.type for packet in read_packets(stream)]
            assert types.index(PacketType.CONNECT) == 0
            assert types.count(PacketType.CONNECT) == 1
        kinds = Counter()
        for message in (message for stream in streams for message in messages_in(stream)):
            assert SENT_TO.fullmatch(message.topic)
            envelope = open_envelope(message.payload)
            read = envelope.read(MESSAGE_TYPES[envelope.kind])
            names.add(read.client_id)
            kinds[envelope.kind] += 1
            if isinstance(read, ModelUpdate):
                assert len(read.body.values) == 4 * 13
                assert read.n_interactions == SEARCHES
        assert kinds.keys() == {"join", "status", "update"}
        assert kinds["update"] >= ROUNDS  # a receipt that is late has it sent again
    assert names == {f"visitor-{i}" for i in range(1, VISITORS + 1)}


def test_nothing_that_was_searched_for_or_shown_leaves_a_page(visit):
    """No query, heading, text or sentence of the documentation is in any byte that was sent."""
    assert len(visit.private) > 3000
    assert leaks(visit.private, visit.streams) == set()


def test_beside_them_a_page_gets_its_files_and_posts_its_public_key(visit):
    """No address holds a question; workers load themselves from the page, which asks nobody."""
    files = {"/", "/page.js", "/index.json", "/features.json", "/favicon.ico"}
    for _, requests in visit.pages:
        asked = [(request, urlsplit(request["url"])) for request in requests if not request["url"].startswith("blob:")]
        assert {address.hostname for _, address in asked} == {"127.0.0.1"}
        assert all((address.query, address.fragment) == ("", "") for _, address in asked)
        posts = [(request, address) for request, address in asked if request["method"] != "GET"]
        assert {address.path for request, address in asked if request["method"] == "GET"} <= files
        ((post, address),) = posts
        assert (post["method"], address.path) == ("POST", "/enrol")
        assert re.fullmatch(r"[0-9a-f]{64}", post["body"])


TOPIC = "foltr/v1/docs-search/clients/visitor-1/join"
JOIN = {"federation": "docs-search", "client_id": "visitor-1", "sdk_version": "0.1.0"}


def publish(topic: str, payload: bytes) -> bytes:
    """A PUBLISH at QoS 1, of 128 bytes or more."""
    rest = len(topic).to_bytes(2, "big") + topic.encode() + b"\x00\x01" + payload
    return bytes([0x32, len(rest) & 0x7F | 0x80, len(rest) >> 7]) + rest


@pytest.mark.parametrize("leaking", [{"sdk_version": "gate of a device"}, {"enrolment": b"Nothing else."}])
def test_a_query_or_a_sentence_in_a_field_of_a_message_would_be_seen(leaking):
    """Although the protocol takes the message; each sentence of a text is looked for."""
    private = private_in(["gate of a device"], ["Whose order is shown. Nothing else."])
    streams = [publish(TOPIC, encode(Join(**fields), TOPIC)) for fields in (JOIN, JOIN | leaking)]
    assert all(decode(message.payload, Join) for stream in streams for message in messages_in(stream))
    assert leaks(private, streams[:1]) == set()
    assert leaks(private, streams) in ({b"gate of a device"}, {b"Nothing else."})
