"""`docs/methods.md` does what it says: the method of the page runs everywhere once its three places are there."""

import re
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import pytest
from pydantic import Field
from simulated import config, simulated
from support.sampled_lists import sampled
from support.small_rankers import LINEAR, RANKERS, see

from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.methods import fpdgd, registry, spec
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.bodies import check_body
from foltr.core.methods.registry import METHODS, body_spec, initial_weights, make_aggregation, make_device
from foltr.core.protocol import trainings
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.codec import decode, encode
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.trainings import Training
from foltr.core.protocol.updates import ModelUpdate
from foltr.federator.plan import FederationPlan
from foltr_research.simulation.method_names import simulated_parameters_of

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"
CLIP_NORM = 0.01


@pytest.fixture
def clipped(monkeypatch):
    """The page's method in its three places; `Training` is an alias, so what names it is made anew in the test."""
    message, module = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {**vars(trainings), **vars(spec), **vars(fpdgd)}
    exec(message, names)  # noqa: S102 (the page's own code)
    exec(module, names)  # noqa: S102
    monkeypatch.setitem(METHODS, "fpdgd-clipped", names["FPDGD_CLIPPED"])
    return names["FPDGD_CLIPPED"]


@pytest.fixture
def training(clipped):
    return sampled(clipped.name, {"clip_norm": str(CLIP_NORM)}, 4)


@pytest.mark.parametrize("ranker", RANKERS, ids=lambda ranker: ranker.kind)
def test_devices_learn_by_it_and_the_federator_aggregates(training, ranker, rng):
    """What a device sends is as short as announced, is accepted, and makes a model by the mean and by a rule."""
    model = initial_weights(training, ranker, rng)
    for rule in (read_rule("mean"), read_rule("median", byzantine=1)):
        aggregation = make_aggregation(training, ranker, rule)
        for seed in range(3):
            device = make_device(training, ranker, model, 7, DeviceContext(seed))
            see(device, training, rng, base_version=7)
            body = device.body(rng)
            check_body(body, body_spec(training, ranker))
            assert np.linalg.norm(device.weights - model) > CLIP_NORM
            assert np.linalg.norm(unpack_vector(body.values)) == pytest.approx(CLIP_NORM)
            aggregation.add(body, 4, client_id=f"device-{seed}")
        following = aggregation.finish(model).weights
        assert 0 < np.linalg.norm(following - model) <= CLIP_NORM * 1.0001


def test_it_is_announced_and_answered_over_the_wire(training, rng):
    """The settings come out of the codec as they went in, and so does an update."""

    new = type(training)

    class Announced(RoundAnnouncement):
        training: Annotated[Training | new, Field(discriminator="kind")]

    federation = {"federation": "mail", "round": 1, "base_version": 0, "base_hash": bytes(16)}
    announced = Announced(**federation, open=True, withdraws_below=0, opened_at=0.0, closes_at=60.0, training=training)
    received = decode(encode(announced), Announced)
    assert received == announced
    device = make_device(received.training, LINEAR, initial_weights(training, LINEAR, rng), 0, DeviceContext(1))
    see(device, training, rng)
    sender = {"client_id": "device-1", "update_id": "0" * 32, "after": 0, "through": 4, "n_interactions": 4}
    update = ModelUpdate(**federation, **sender, body=device.body(rng))
    assert decode(encode(update), ModelUpdate) == update


def test_a_federation_is_planned_and_unlearned_with_it(training, clipped):
    """The federator takes its settings; blocks and lists end at the same bits, other ones than without the clip."""
    plan = FederationPlan("mail", LINEAR.n_features, training=training)
    assert registry.learns_from_kept_lists(plan.training, plan.ranker)
    assert simulated_parameters_of("fpdgd-clipped")["clip_norm"] == "1.0"
    short, long = (
        config(method=clipped.name, clicks="navigational", parameters={"clip_norm": bound})
        for bound in (CLIP_NORM, 100)
    )
    blocks, lists = (simulated(short, runner=kind) for kind in ("block", "reference"))
    np.testing.assert_array_equal(blocks.weights, lists.weights)
    assert blocks.ndcg_at_10 == lists.ndcg_at_10
    unclipped = simulated(config(clicks="navigational")).weights
    assert np.linalg.norm(blocks.weights) <= 4 * CLIP_NORM < np.linalg.norm(unclipped)
    np.testing.assert_allclose(simulated(long).weights, unclipped, rtol=1e-6)


def test_every_method_can_be_announced_and_no_training_is_left_over():
    """The messages stand below the methods, so that both lists hold the same is for a test to say."""
    announced = get_args(get_args(Training)[0])
    assert set(announced) == {method.training for method in METHODS.values()}
    assert len(announced) == len(METHODS)
    assert [method.name for method in METHODS.values()] == list(METHODS)
