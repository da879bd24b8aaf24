"""Spans at a collector: a round with what was done in it, and no words of an error."""

import time

import pytest
from collector import collector

from foltr.cli.tracer import tracer_to
from foltr.core.tracing import NO_TRACER


def test_nothing_is_traced_unless_it_is_asked_for():
    with tracer_to(None, "mail") as tracer:
        assert tracer is NO_TRACER


def test_a_round_is_one_trace():
    """With its times, and what is stored in it as its parts; how it failed is not told in the database's words."""
    with collector() as server:
        with tracer_to(server.url, "mail") as tracer:
            span = tracer.begin("round", 1_000.0, {"round": 7})
            with span.child("commit_batch", {"n_updates": 3}):
                pass
            with pytest.raises(OSError, match="anna"), span.child("commit_batch", {}):
                raise OSError("the row of anna")
            span.note("aggregation", 1_001.0, 1_003.0)
            span.end(1_004.0, {"state": "completed"})
        committed, failed, aggregation, whole = server.spans()
    assert (whole.name, whole.end_time_unix_nano - whole.start_time_unix_nano) == ("round", 4_000_000_000)
    assert {part.parent_span_id for part in (committed, failed, aggregation)} == {whole.span_id}
    assert {part.trace_id for part in (committed, failed, aggregation)} == {whole.trace_id}
    assert aggregation.end_time_unix_nano - aggregation.start_time_unix_nano == 2_000_000_000
    assert not failed.events
    assert b"anna" not in b"".join(server.bodies)
    assert b"foltr-federator" in b"".join(server.bodies)


def test_a_collector_that_is_away_keeps_nobody_from_ending():
    """For longer than a few seconds."""
    began = time.monotonic()
    with tracer_to("http://127.0.0.1:1/v1/traces", "mail") as tracer:
        tracer.begin("round", 1_000.0, {}).end(1_001.0, {})
    assert time.monotonic() - began < 15
