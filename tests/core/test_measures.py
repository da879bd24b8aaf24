"""What a process counts: by Prometheus' conventions, and under no label that could be anybody's name."""

import re

import pytest

from foltr.core.measures import Label, Measures
from foltr.core.protocol.receipts import ReceiptCode
from foltr.federator.measures import FederatorMeasures
from foltr.helper.measures import HelperMeasures

KIND = Label("kind", ("update", "join"))


def test_a_label_takes_no_other_value():
    """A name, a newer version's code: counted, and not shown; a histogram counts what was at most as long."""
    counter = Measures().counter("foltr_messages_total", "Messages.", KIND)
    for of in ("update", "anna-laptop", "update", "bert-phone"):
        counter.add(of=of)
    assert counter.counts == {"update": 2, "join": 0, "other": 2}
    gauge = Measures().gauge("foltr_open", "Open ones.", KIND)
    with pytest.raises(KeyError):
        gauge.set(1, "anna-laptop")
    assert set(ReceiptCode) < set(FederatorMeasures("mail").refused.counts)
    histogram = Measures().histogram("foltr_seconds", "Seconds.", bounds=(0.1, 1.0))
    for seconds in (0.1, 0.5, 7.0, 0.01):
        histogram.observe(seconds)
    assert histogram.buckets() == [("0.1", 2), ("1.0", 3), ("+Inf", 4)]
    assert histogram.sum() == pytest.approx(0.1 + 0.5 + 7.0 + 0.01)


@pytest.mark.parametrize("measures", [FederatorMeasures("mail"), HelperMeasures("mail", "north")])
def test_names_follow_the_conventions(measures):
    """Base units; only counters end in _total; one sentence of help; no name twice."""
    names = [measure.name for measure in measures.all]
    assert len(set(names)) == len(names)
    for measure in measures.all:
        assert re.fullmatch(r"foltr_[a-z_]+", measure.name)
        assert measure.name.endswith("_total") == (type(measure).__name__ == "Counter")
        assert measure.name.endswith("_seconds") >= (type(measure).__name__ == "Histogram")
        assert measure.meaning.endswith(".")
        assert measure.label is None or measure.label.name not in measures.about
