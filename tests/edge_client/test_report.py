"""A report says whether the model's order is better, with an interval, or that there is too little to tell."""

from dataclasses import replace

import numpy as np
import pytest
from support.federator_by_hand import N_FEATURES, announced, device, in_round

from foltr import Ranking, SearchRanker
from foltr.core.errors import UsageError
from foltr.core.learning.gate import FadingMean, Gate, ShownCount, Source, with_list
from foltr.edge_client.device_state import DeviceState, ListOrder
from foltr.edge_client.report import report_of

DOCUMENTS = np.eye(4, N_FEATURES, dtype=np.float32)
FIRST = np.array([True, False])
CLOSED = DeviceState("connected, model 3", ListOrder(Source.BASE, 0.05), 3)
OPEN = DeviceState("connected, model 3", ListOrder(Source.MODEL, 0.05), 3)


def of_credits(*signs):
    gate = Gate()
    for credit in signs:
        gate = with_list(gate, Source.INTERLEAVED, FIRST, np.full(2, credit, np.int8))
    return gate


def test_few_lists_are_too_few_to_tell():
    """No number is given that means nothing, neither as data nor in the text."""
    report = report_of(CLOSED, of_credits(1, 1, 1, 1), is_gated=True)
    assert (report.n_lists, report.n_clicked, report.preference, report.reward_difference) == (4, 4, None, None)
    assert str(report) == (
        "Lists are in the application's order, 5 in 100 mixed with the model's: fewer than 10 mixed lists say which "
        "order is better. 4 lists were recorded, 4 with a click. Is the model's order better than the "
        "application's: too few to tell."
    )


def test_mixed_lists_say_which_order_is_better_and_how_sure_that_is():
    """Wilson's interval of the share; 0.5 is in it where both are alike, and it is narrower with more lists."""
    alike = report_of(CLOSED, of_credits(*[1, -1] * 20), is_gated=True).preference
    assert alike.low < 0.5 < alike.high
    assert alike.estimate == pytest.approx(0.5, abs=0.01)
    fewer = report_of(CLOSED, of_credits(*[1, -1] * 8), is_gated=True).preference
    assert fewer.high - fewer.low > alike.high - alike.low
    report = report_of(OPEN, of_credits(*[1] * 30), is_gated=True)
    # Of n equal ones Wilson's lower bound is n / (n + z ** 2).
    assert report.preference.low == pytest.approx(30 / (30 + 1.96**2), abs=0.01)
    assert report.preference.high == pytest.approx(1.0)
    assert "Of 100 mixed lists 100 favour the model's order (95 % interval" in str(report)
    assert "clicks favoured the model's" in report.cause


def test_rewards_of_both_orders_are_compared():
    """As 1 / position of the first click, in the means that the gate closes by."""
    gate = Gate(is_open=True, of_base=FadingMean(100.0, 100.0, 50.0, 50.0), of_model=FadingMean(10.0, 10.0, 8.0, 8.0))
    report = report_of(OPEN, gate, is_gated=True)
    # Both have a variance of one reward of 1/4, the base's: 1.96 * sqrt(0.25 / 100 + 0.25 / 10) on either side.
    half = 1.96 * (0.25 / 100 + 0.25 / 10) ** 0.5
    assert list(report.reward_difference) == pytest.approx([0.3, 0.3 - half, 0.3 + half])
    assert report.in_effect == {Source.BASE: 100, Source.MODEL: 10, Source.INTERLEAVED: 0}
    newest = "The model's newest 10 lists have more reward than the application's newest 100"
    assert f"{newest} by +0.300 (95 % interval -0.025 to +0.625)" in str(report)
    for _ in range(300):
        gate = with_list(gate, Source.MODEL, FIRST)
    # A list weighs 0.93 times the next one of the model: however many there are, 27 count in effect.
    assert report_of(OPEN, gate, is_gated=True).in_effect[Source.MODEL] == round((1 + 0.93) / (1 - 0.93))


@pytest.mark.parametrize(
    ("state", "gate", "is_gated", "cause"),
    [
        (DeviceState("not enrolled"), Gate(), True, "there is no model yet"),
        (OPEN, Gate(), False, "without a gate nothing is compared"),
        (OPEN, Gate(), True, "the method makes its own lists"),
        (replace(OPEN, order=ListOrder(Source.MODEL)), Gate(is_open=True), True, "the method makes its own lists"),
        (OPEN, Gate(is_open=True), True, "all users' clicks favoured the model's"),
        (CLOSED, Gate(is_open=True), True, "the model cannot rank these documents, or is empty"),
        (replace(CLOSED, order=ListOrder(Source.BASE)), Gate(), True, "the model cannot rank these documents"),
        (CLOSED, of_credits(*[1, -1] * 10), True, "clicks do not favour the model's 100 to 1, but 0."),
    ],
)
def test_the_cause_is_named(state, gate, is_gated, cause):
    """Whose order is shown, and why."""
    assert report_of(state, gate, is_gated=is_gated).cause.startswith(cause)


def test_a_ranker_without_a_federation_reports_its_lists():
    """And says in one line what it does; closed, or without a gate, it has no numbers."""
    with SearchRanker(store=":memory:", ranking=Ranking(gate=False)) as ranker:
        ranker.record_clicks(ranker.rank(DOCUMENTS), [1])
        assert str(ranker.report()) == "Lists are in the application's order: there is no model yet."
    with SearchRanker(store=":memory:") as ranker:
        ranker.record_clicks(ranker.rank(DOCUMENTS, exploration="none"), [1])
        assert "1 list was recorded, 1 with a click." in str(ranker.report())
        ranker.record_clicks(ranker.rank(DOCUMENTS, exploration="none"), [])
        report = ranker.report()
        assert (report.n_lists, report.n_clicked) == (2, 1)
        assert report.shown == {Source.BASE: ShownCount(2, 1, 0.5)}
        assert repr(ranker).startswith("<SearchRanker: not enrolled: lists are in the application's order")
    with pytest.raises(UsageError, match="closed"):
        ranker.report()
    assert repr(ranker) == "<SearchRanker: closed: lists are in the application's order>"


async def test_a_client_reports_too(mqtt_broker, nowhere):
    """Before it is entered, in a round, without a gate, and without the exploration by which clicks could open one."""
    assert repr(device(nowhere)) == "<EdgeClient: device-7 of 'mail', not entered>"
    async with in_round(mqtt_broker) as (_, client):
        client.record_clicks(client.rank(DOCUMENTS), [0])
        assert client.report().n_lists == 1
        assert client.report().order == client.state.order
        assert "model 0" in repr(client)
    async with in_round(mqtt_broker, gate=False) as (_, client):
        client.record_clicks(client.rank(DOCUMENTS), [0])
        assert str(client.report()) == "Lists are in the model's order: without a gate nothing is compared."
        assert client.report().n_lists is None
    announces = {"newest": announced(0, np.ones(N_FEATURES))}
    async with in_round(mqtt_broker, exploration="none", announces=announces) as (_, client):
        assert client.report().cause.endswith("which order is better, and without exploration no lists are mixed")
