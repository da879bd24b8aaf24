"""`docs/add-a-method.md` does what it says: the method of the page runs everywhere once its three places are there."""

import ast
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
from foltr.core.protocol.codec import MESSAGE_TYPES, decode, encode
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.trainings import Training
from foltr.core.protocol.updates import ModelUpdate
from foltr.federator.plan import FederationPlan
from foltr_research.simulation.method_names import simulated_parameters_of

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs" / "add-a-method.md"
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


def test_the_page_is_short():
    """It is for whoever has an hour, not a week; and it names files that are there."""
    text = PAGE.read_text()
    assert len(text.splitlines()) <= 40
    for file in re.findall(r"`((?:foltr|tests)/[\w/.]+)`", text):
        assert (PROJECT / file).exists(), file


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


def test_it_is_announced_and_answered_over_the_wire(training, monkeypatch, rng):
    """The settings come out of the codec as they went in, and so does an update."""

    new = type(training)

    class Announced(RoundAnnouncement):
        training: Annotated[Training | new, Field(discriminator="kind")]

    monkeypatch.setitem(MESSAGE_TYPES, Announced.kind_name, Announced)
    federation = {"federation": "mail", "round": 1, "base_version": 0, "base_hash": bytes(16)}
    announced = Announced(**federation, open=True, withdraws_below=0, opened_at=0.0, closes_at=60.0, training=training)
    received = decode(encode(announced), Announced)
    assert received == announced
    device = make_device(received.training, LINEAR, initial_weights(training, LINEAR, rng), 0, DeviceContext(1))
    see(device, training, rng)
    sender = {"client_id": "device-1", "update_id": "0" * 32, "after": 0, "through": 4, "n_interactions": 4}
    update = ModelUpdate(**federation, **sender, body=device.body(rng))
    assert decode(encode(update), ModelUpdate) == update


def test_the_simulator_runs_it_in_blocks_and_list_by_list(clipped):
    """To the same bits, and otherwise than without the clip, which a large bound leaves out."""
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


def test_a_federation_is_planned_and_unlearned_with_it(training):
    """The federator takes its settings, and others can learn again what a forgotten client leaves behind."""
    plan = FederationPlan("mail", LINEAR.n_features, training=training)
    assert registry.learns_from_kept_lists(plan.training, plan.ranker)
    assert simulated_parameters_of("fpdgd-clipped")["clip_norm"] == "1.0"


def test_every_method_can_be_announced_and_no_training_is_left_over():
    """The messages stand below the methods, so that both lists hold the same is for a test to say."""
    announced = get_args(get_args(Training)[0])
    assert set(announced) == {method.training for method in METHODS.values()}
    assert len(announced) == len(METHODS)
    assert [method.name for method in METHODS.values()] == list(METHODS)


def test_nobody_else_asks_for_the_type_of_a_training():
    """A method's own module may; whoever else did would be a fourth place."""
    rooms = ("core", "foltr", "edge_client", "federator", "broker", "storage", "docs")
    files = [file for room in rooms for file in (PROJECT / room).rglob("*.py")]
    others = [file for file in files if not file.is_relative_to(PROJECT / "core" / "methods")]
    assert len(others) > 200
    assert [found for file in others for found in type_tests(file)] == []


def type_tests(file):
    """Where a file tells trainings apart by their type: by isinstance, by type() or by a case."""
    text = file.read_text()
    for node in ast.walk(ast.parse(text)) if "Training" in text else ():
        asked = isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass")
        asked = asked or (isinstance(node, ast.Compare) and "type(" in ast.unparse(node))
        if (asked or isinstance(node, ast.MatchClass)) and re.search(r"\w+Training\b", ast.unparse(node)):
            yield f"{file.relative_to(PROJECT)}:{node.lineno}: {ast.unparse(node)}"
