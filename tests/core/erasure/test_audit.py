"""The audit log: a chain that is whole passes, and whatever was done to it is found and named."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.core.erasure.audit import FIRST_PREVIOUS_HASH, AuditEntry, check_chain, next_entry
from foltr.core.errors import DataError

AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
BODIES = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


def chain(n: int, what: str = "erased") -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    for number in range(n):
        previous = entries[-1] if entries else None
        body = {"pseudonym": f"{number:032x}", "n_updates": number, "what": what}
        entries.append(next_entry(previous, AT + timedelta(seconds=number), "erasure", body))
    return entries


def refused(entries) -> str:
    with pytest.raises(DataError, match="restore a backup") as refusal:
        check_chain(entries)
    return str(refusal.value)


def test_a_hash_is_what_is_written_down_and_a_whole_chain_is_counted():
    """SHA-256 over sorted JSON without spaces, spelled out here, so that others can check a log without foltr."""
    first = next_entry(None, AT, "erasure", {"n_updates": 3, "name": "é"})
    zeros = "0" * 64
    text = (
        '{"at":"2026-01-02T03:04:05.000678+00:00","body":{"n_updates":3,"name":"\\u00e9"},"kind":"erasure",'
        f'"previous_hash":"{zeros}","seq":1}}'
    )
    assert first.hash == hashlib.sha256(text.encode()).hexdigest()
    second = next_entry(first, AT, "job", {})
    assert (first.seq, second.seq) == (1, 2)
    assert (first.previous_hash, second.previous_hash) == (FIRST_PREVIOUS_HASH, first.hash)
    assert [check_chain(chain(n)) for n in (0, 1, 5)] == [0, 1, 5]
    assert check_chain(iter(chain(4))) == 4


def test_a_moment_counts_not_its_time_zone_and_a_body_as_it_is_read():
    """Keys become text before the hash is made; no moment without a zone, nothing that JSON does not have."""
    elsewhere = AT.astimezone(timezone(timedelta(hours=9)))
    assert next_entry(None, elsewhere, "erasure", {}).hash == next_entry(None, AT, "erasure", {}).hash
    entry = next_entry(None, AT, "erasure", {"rounds": {9: (1, 2), 10: ()}})
    assert entry.body == {"rounds": {"9": [1, 2], "10": []}}
    assert check_chain([entry]) == 1
    with pytest.raises(ValueError, match="time zone"):
        next_entry(None, datetime(2026, 1, 2), "erasure", {})  # noqa: DTZ001 (that is the test)
    with pytest.raises(ValueError, match="JSON compliant"):
        next_entry(None, AT, "erasure", {"coverage": float("inf")})
    with pytest.raises(TypeError):
        next_entry(None, AT, "erasure", {"digest": b"bytes"})


@settings(derandomize=True)
@given(BODIES)
def test_any_body_survives_the_database(body):
    """Written as JSON and read again, whatever the order of keys and the spelling of numbers, its hash is right."""
    import json

    entry = next_entry(None, AT, "erasure", body)
    stored = json.loads(json.dumps(entry.body, indent=1))
    backwards = dict(reversed(stored.items()))
    assert check_chain([replace(entry, body=backwards)]) == 1


def test_a_changed_field_is_found_where_it_is():
    """Of one with a new hash the entry after it was chained to the old one; the change is named, not its witness."""
    for change in [
        {"at": AT + timedelta(microseconds=1)},
        {"kind": "erasures"},
        {"body": {}},
        {"body": {"n_updates": float("nan")}},
        {"previous_hash": "f" * 64},
        {"hash": "f" * 64},
        {"hash": ""},
    ]:
        for place in [0, 2, 4]:
            entries = chain(5)
            entries[place] = replace(entries[place], **change)
            assert refused(entries).startswith(f"audit log: entry {place + 1} was changed"), (change, place)
    entries = chain(5)
    entries[2] = next_entry(entries[1], AT, "erasure", {"n_updates": 0})
    assert refused(entries).startswith("audit log: entry 3 was changed: entry 4 was chained to another")
    # At the beginning, too, where there is no entry before.
    other = next_entry(None, AT, "erasure", {})
    assert refused([next_entry(replace(other, seq=0), AT, "erasure", {})]).startswith("audit log: entry 1 was changed")


def test_entries_taken_out_or_mixed_in_are_found():
    """Where the rest was renumbered, too, and an entry of another log with the right number."""
    for taken, missing in [(0, 1), (1, 2), (3, 4)]:
        entries = chain(5)
        del entries[taken]
        assert refused(entries).startswith(f"audit log: entry {missing} is missing; {missing + 1} is the next")
    one, two, three = chain(3)
    assert "entry 2 is missing" in refused([one, three, two])
    assert refused([one, two, two, three]).startswith("audit log: entry 2 is out of order: it comes after 2")
    assert refused([one, replace(two, seq=-5)]).startswith("audit log: entry -5 is out of order")
    entries = chain(4)
    rest = [replace(entry, seq=number) for number, entry in enumerate(entries[:1] + entries[2:], start=1)]
    assert refused(rest).startswith("audit log: entry 2 was changed")
    ours, theirs = chain(4), chain(4, "other")
    assert refused([*ours[:2], theirs[2], ours[3]]).startswith("audit log: entry 2 was changed")
