"""A client's name in stored words is found where it names the client, and nowhere else."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foltr.protocol.fields import NAME_PATTERN
from storage.erasure.redaction import PLACES, in_the_federators_words, in_the_operators_words

PSEUDONYM = "0123456789abcdef" * 2
# As short as they may be, parts of one another, numbers, and words of the sentences themselves.
AWKWARD = ["a", "1", "12", "1.5", "a.b", "a-1", "of", "from", "client", "round", "bob", "bob-1", "the", "signed", "no"]
NAMES = st.sampled_from(AWKWARD) | st.from_regex(re.compile(NAME_PATTERN), fullmatch=True)
# Sentences as events hold them, with {} where a client is named; without it they name nobody.
SENTENCES = [
    "says it is from {} on the topic of {}",
    "join: the enrolment is not one of {} signed by this federation's operator",
    "many clients; the last one: forget: no client {} has ever joined: nothing to forget",
    "no client {} has ever joined",
    "12 messages were turned away; most from {}: 1 (rate)",
    "the update of round 1 from '{}' in federation 'a' is sealed, and no data keys are at hand",
    "12 messages were turned away; most from unknown clients: 1 (rate)",
    "for a; this federation is bob",
    "kind a where 'a' belongs",
    "1 bytes; a message has at most 12",
    "an order of nonce 1; 12 was seen",
    "job 1: rollback from model 12, 1 steps, 1 clients",
    "left out from now on: pulls apart from the others, 1.5 standard errors above their median, over 12 updates",
]
STORED = st.lists(st.tuples(st.sampled_from(SENTENCES), NAMES, NAMES), min_size=1, max_size=30)


def named(sentence: str, names: tuple[str, str]) -> str:
    return sentence.format(*names[: sentence.count("{}")])


@given(erased=NAMES, stored=STORED)
def test_only_what_names_the_client_changes(erased, stored):
    """After one client is erased its name is in no event, and the details that do not name it are what they were."""
    rewrite = in_the_federators_words(erased, PSEUDONYM)
    for sentence, *names in stored:
        told = named(sentence, names)
        left = named(sentence, [PSEUDONYM if name == erased else name for name in names])
        assert rewrite(told) == left
        if erased not in names[: sentence.count("{}")]:
            assert rewrite(told) == told


@given(erased=NAMES, other=NAMES, text=st.text(st.sampled_from("ab1.-_ 'x"), max_size=30))
def test_what_is_taken_out_is_gone_and_stays_so(erased, other, text):
    """Once more changes nothing, and every place holds another name from then on."""
    assume(erased != other)
    rewrite = in_the_federators_words(erased, PSEUDONYM)
    for before, after in PLACES:
        told = f"{text}{before}{erased}{after}"
        assert not rewrite(told).endswith(f"{before}{erased}{after}")
        assert rewrite(rewrite(told)) == rewrite(told)
        assert rewrite(f"{before}{other}{after}") == f"{before}{other}{after}"


@pytest.mark.parametrize(
    ("client_id", "told", "left"),
    [
        (
            "device-7",
            "a sentence of tomorrow that says device-7, and device-7",
            "a sentence of tomorrow that says {}, and {}",
        ),
        ("device-7", "device-77 and my-device-7 are others", None),
        ("bob", "a sentence of tomorrow that says bob", None),
    ],
)
def test_an_unmistakable_name_is_found_wherever_it_is(client_id, told, left):
    """Also where nobody thought that a name would be; one that is also a word only where it names a client."""
    expected = told if left is None else left.replace("{}", PSEUDONYM)
    assert in_the_federators_words(client_id, PSEUDONYM)(told) == expected


@pytest.mark.parametrize(
    ("client_id", "told", "left"),
    [
        ("device-7", "copies device-7.", "copies {}."),
        ("device-7", "'device-7' and device-7", "'{}' and {}"),
        ("device-7", "device-77, my-device-7, device-7.b and Device-7 stay", None),
        ("device-7", "device_7 stays", None),
        ("carol", "as carol does", "as {} does"),
        ("a", "it is a liar, and a-1 is one", None),
        ("a", "it copies client a, 'a' and device a", "it copies client {}, '{}' and device {}"),
        ("a", "a client and", None),
        ("12", "12 updates in 12.5 s", None),
        ("123", "123 updates, and client 123", "123 updates, and client {}"),
    ],
)
def test_the_operators_words(client_id, told, left):
    """A whole name, wherever it is; one that is in any text by chance only where it is called a client's."""
    expected = told if left is None else left.replace("{}", PSEUDONYM)
    assert in_the_operators_words(client_id, PSEUDONYM)(told) == expected
