"""What rounds were computed with is noted once for as long as it holds."""

import pytest

from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import load_trainings, note_training


async def test_settings_hold_from_the_round_on_that_they_were_noted_for(stored) -> None:
    """A federator that starts again with the same notes nothing; with others they are those of its first round on."""
    for from_round, training in ((1, "a"), (1, "a"), (3, "a"), (3, "b"), (7, "a")):
        await stored.note_training(from_round, training)
    assert await stored.load_trainings() == {1: "a", 3: "b", 7: "a"}
    assert await load_trainings(stored.db, "elsewhere") == {}


async def test_what_no_round_was_computed_with_is_not_stored(stored) -> None:
    """The round that a federator had open ended with the next one's settings; or with its own, as they came back."""
    for training, noted in (("a", {1: "a"}), ("b", {1: "b"}), ("a", {1: "a"})):
        await stored.note_training(1, training)
        assert await stored.load_trainings() == noted
    for training, noted in (("b", {1: "a", 4: "b"}), ("a", {1: "a"})):
        await stored.note_training(4, training)
        assert await stored.load_trainings() == noted


async def test_only_the_writer_of_a_federation_notes_anything(stored) -> None:
    with pytest.raises(WriterFencedError):
        await note_training(stored.db, "web", stored.epoch - 1, 1, "a")
    assert await stored.load_trainings() == {}
