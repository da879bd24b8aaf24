"""Short ways of packing and unpacking come to what the long ones come to."""

import msgpack
from support.wire_messages import MESSAGES, WIRE, name_of

from foltr.core.protocol.codec import _unpack_as_we_pack, _unpack_carefully, open_envelope


def test_what_is_packed_as_we_pack_it_reads_as_what_is_read_with_care():
    for message, _ in MESSAGES:
        wire, longest_list = WIRE[name_of(message)], type(message).longest_list
        for data, longest in ((wire, 0), (open_envelope(wire).body, longest_list)):
            assert _unpack_as_we_pack(data, longest) == _unpack_carefully(data, "message", longest), message


def test_everything_else_is_left_to_the_careful_one():
    """Others may pack otherwise, and whoever breaks the protocol is to be told how."""
    for data in [
        b"\x82\xa1a\x01\xa1a\x02",  # a key twice
        b"\x81\xa1a\xcd\x00\x01",  # a number in more bytes than it needs
        b"\x81\xa1a\xca\x00\x00\x00\x00",  # a number of half the precision
        msgpack.packb([{"a": 1}]),
        msgpack.packb({"a": 1}) + b"\x00",
        msgpack.packb({"a": 1})[:-1],
        msgpack.packb({str(i): i for i in range(65)}),
        msgpack.packb({"a": list(range(65))}),
        b"",
    ]:
        assert _unpack_as_we_pack(data, 0) is None, data


def test_a_message_is_packed_as_pydantic_tells_it():
    """What is packed without asking pydantic is the same, in the same order, and leaves the same out."""
    for message, _ in MESSAGES:
        assert msgpack.packb(message.packed()) == msgpack.packb(message.model_dump()), message
