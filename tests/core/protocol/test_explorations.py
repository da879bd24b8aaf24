"""An exploration has one spelling, and what is none is refused in words."""

import pytest

from foltr.core.errors import SettingsError
from foltr.core.protocol import explorations
from foltr.core.protocol.trainings import PdgdTraining


def test_one_word_says_an_exploration():
    """Its kind, and behind colons the numbers that are not its defaults; the default is safe."""
    for text, exploration, again in [
        ("none", explorations.NoExploration(), "none"),
        ("share", explorations.ShareExploration(share=0.1, temperature=0.3), "share:0.1:0.3"),
        ("share:0.25", explorations.ShareExploration(share=0.25), "share:0.25:0.3"),
        ("share:1:2.5", explorations.ShareExploration(share=1.0, temperature=2.5), "share:1.0:2.5"),
        ("swaps:0.1", explorations.SwapsExploration(probability=0.1), "swaps:0.1"),
        ("interleaving", explorations.InterleavingExploration(), "interleaving"),
        (" sampling ", explorations.SamplingExploration(), "sampling"),
        ("sampling:0.3", explorations.SamplingExploration(temperature=0.3), "sampling:0.3"),
    ]:
        assert explorations.read_exploration(text) == exploration, (text, exploration, again)
        assert explorations.exploration_text(exploration) == again, (text, exploration, again)
        assert explorations.read_exploration(again) == exploration, (text, exploration, again)
    assert PdgdTraining().exploration == explorations.SAFE == explorations.SwapsExploration(probability=0.004)
    for text, complaint in [
        ("", "known are none, share, swaps, interleaving, sampling, e.g. swaps:0.004"),
        ("none:1", "none has 0 numbers: none"),
        ("sampling:0.3:1", "sampling has 1 numbers: temperature"),
        ("swaps:0.6", "probability: .*less than or equal to 0.5"),
        ("swaps:0", "probability: .*greater than 0"),
        ("sampling:0", "temperature: .*greater than or equal to 0.001"),
        ("sampling:nan", "temperature: .*finite|greater"),
    ]:
        with pytest.raises(SettingsError, match=f"exploration: .*{complaint}"):
            explorations.read_exploration(text)
