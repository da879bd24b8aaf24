"""What devices are told of a model and of a round."""

from dataclasses import replace
from datetime import UTC, datetime

from foltr.core.protocol.announcements import Selection
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.federator.deciding.state import FederationState
from foltr.federator.plan import FederationPlan
from foltr.federator.publishing.announcements import model_announcement, round_announcement
from foltr.federator.round import Round, RoundPolicy, SelectedClients
from foltr.storage.records import ModelRow

PLAN = FederationPlan("mail", 2)
STATE = FederationState(PLAN)
STATE.selection_seed, STATE.oldest_base, STATE.model_hashes = b"f" * 32, 2, {3: b"h" * 16}
AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_round_is_announced_with_whom_it_asks():
    """The seed is the federation's first, from which a client works out the round's; nobody is named."""
    policy = RoundPolicy(1, 9, 0.0, 60.0)
    selection = SelectedClients(b"r" * 32, b"c" * 8, 3, 7)
    told = round_announcement(STATE, Round.open(4, 3, policy, 100.0, selection), is_open=True)
    assert (told.federation, told.round, told.base_version, told.open) == ("mail", 4, 3, True)
    assert (told.base_hash, told.withdraws_below) == (b"h" * 16, 2)
    assert (told.opened_at, told.closes_at, told.training) == (100.0, 160.0, PLAN.training)
    assert told.selection == Selection(first_seed=b"f" * 32, cutoff=b"c" * 8, n_selected=3, n_eligible=7)


def test_models_and_rounds_are_announced_with_the_hash_of_the_schema():
    """So that a device whose features are others sees it; without a schema there is none."""
    schema = FeatureSchema(name="shop", version=1, features=[Feature(name=name, scaling="ratio") for name in "ab"])
    model = ModelRow("mail", 3, 2, 7, 2, pack_vector([0.5, -1.0]), bytes(16), AT, None)
    opened = Round.open(4, 3, RoundPolicy(1, 9, 0.0, 60.0), 100.0)
    for plan, told in ((PLAN, None), (replace(PLAN, schema=schema), schema.hash)):
        state = FederationState(plan)
        state.model_hashes = STATE.model_hashes
        assert model_announcement(plan, model).schema_hash == told
        assert round_announcement(state, opened, is_open=True).schema_hash == told
