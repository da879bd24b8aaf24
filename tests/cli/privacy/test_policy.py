"""``foltr policy``: signed from options, shown as it was signed, and retained at a real broker."""

import asyncio
import json
import shutil

import pytest
from cli.commands import foltr
from cli.operator.test_enrol import heard
from support.servers import free_port

from foltr.core.operator.credentials import BrokerAccess, read_credentials
from foltr.core.operator.helper_keys import helper_keys_text
from foltr.core.protocol.policies import MAX_SECURE_DIM
from foltr.core.protocol.signed_policies import read_policy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics
from foltr.core.protocol.verify_keys import open_verify_key
from foltr.operations.operator_access import access_to

TOPIC = Topics("mail").policy


def keys_of(folder, number=0):
    """The options that name two helpers, with keys for one policy."""
    options = []
    for i, name in enumerate(("north", "south")):
        path = folder / f"{name}-{number}.json"
        key = bytes([i + 1, number]) * 16
        path.write_text(helper_keys_text(name, SigningKey(bytes([i + 1]) * 32), key, [key]))
        options += ["--helper", path]
    return options


@pytest.fixture
def folder(tmp_path):
    """One with an operator's folder in it, for a broker that nobody runs."""
    where = ("--federation", "mail", "--broker", f"mqtt://127.0.0.1:{free_port()}")
    foltr("device", "enrol", "device-1", *where, "--privacy", "secure", cwd=tmp_path, code=0)
    return tmp_path


def new(folder, *options, number=0, code=None):
    return foltr("policy", "new", *keys_of(folder, number), *options, cwd=folder, code=code)


def newest(folder):
    return read_credentials(folder / "foltr-operator" / "operator.json", "operator").signed_policy


def test_a_policy_is_made_from_options_and_says_what_it_costs(folder):
    """Its hash, what it promises, the noise beside an update, and what comes next."""
    lines = new(folder, "--clients", 2000, code=0).stdout.splitlines()
    assert lines[0] == f"signed policy 1 of mail, {newest(folder).hash.hex()}"
    assert "epsilon 8 with delta 1e-06 for 20 participations" in lines[1]
    assert lines[2].endswith("compared with other updates (replace) it is epsilon 18.4 with delta 1e-06")
    assert lines[4] == "  noise 1.6 times a typical mean update: learns as without noise"
    assert lines[5].startswith("  each device proves that its vector is not too long")
    assert lines[-1].endswith("foltr policy publish")


def test_every_option_is_in_the_policy(folder):
    """And in no other one: the defaults are beside it."""
    options = (
        *("--mechanism", "gamma", "--noise-by", "clients", "--shares", 8, "--epsilon", 2, "--delta", 1e-7),
        *("--participations", 4, "--clients", 300, "--rounds", 12, "--dim", 46, "--interactions", 7),
        *("--cohorts", 3, "--n-min", 9, "--n-max", 90, "--version", 5, "--norm-proof", "none"),
        *("--epoch-hours", 24),
    )
    done = new(folder, *options, "--json", code=0)
    shown = json.loads(done.stdout)
    policy = newest(folder).policy
    wanted = {"version": 5, "hash": newest(folder).hash.hex(), "epoch_hours": 24.0, "published": False}
    wanted |= {"mechanism": "gamma", "noise_by": "clients", "noise": 512, "shares": 8, "dim": 46, "bound": 256}
    wanted |= {"n_min": 9, "n_max": 90, "n_interactions": 7, "max_participations": 4, "period": 3, "cohorts": 3}
    wanted |= {"epsilon": 2.0, "replace_epsilon": 4.0, "delta": 0.0, "norm_proof": "none"}
    wanted |= {"federation": "mail", "vote_weight": 0, "evaluation_weight": 0, "credit_weight": 0}
    times = {name: shown["policy"][name] for name in ("issued_at", "ends_at")}
    assert shown["policy"] == wanted | times
    assert (policy.delta, policy.noise.scale) == (1e-7, 256 * 4 / 2)
    assert [helper["name"] for helper in shown["helpers"]] == ["north", "south"]
    assert any("hopeless" in line or "noise" in line for line in shown["costs"])


def test_norm_proofs_votes_and_an_evaluation_are_in_a_policy_unless_told_otherwise(folder):
    """Shown as they were signed; the federator's own key opens the verify key. Without them the words say so."""
    both = json.loads(new(folder, "--clients", 4000, "--json").stdout)
    assert (both["policy"]["norm_proof"], both["policy"]["cohorts"]) == ("l2", 1)
    assert both["policy"]["vote_weight"] == newest(folder).policy.votes.weight == 64
    assert any("the sum has each device's vote on the newest model" in line for line in both["costs"])
    (key,) = read_credentials(folder / "foltr-operator" / "federator.json", "federator").opened_sealing_keys
    assert len(open_verify_key(newest(folder).policy, None, key)) == 32
    shown = foltr("policy", "show", cwd=folder).stdout
    assert f"sealed to each helper, and to the federator's key {key.public.hex()}" in shown
    assert ("vote_weight" in shown, "evaluation_weight" in shown) == (True, True)
    voting = json.loads(new(folder, "--no-evaluation", "--json", number=1).stdout)
    weights = ("evaluation_weight", "credit_weight", "vote_weight")
    assert [voting["policy"][name] for name in weights] == [0, 0, 64]
    assert newest(folder).policy.evaluation is None
    assert any("no evaluation: users' clicks do not show" in line for line in voting["costs"])
    earning = json.loads(new(folder, "--no-votes", "--json", number=2).stdout)
    assert [earning["policy"][name] for name in weights] == [32, 64, 0]
    assert newest(folder).policy.votes is None
    bare = json.loads(new(folder, "--clients", 4000, "--norm-proof", "none", "--json", number=3).stdout)
    assert (bare["policy"]["norm_proof"], bare["policy"]["cohorts"]) == ("none", 20)
    assert "verify key" not in foltr("policy", "show", cwd=folder).stdout


def test_another_key_of_the_federator_says_what_becomes_of_the_verify_key(folder):
    """While the former credentials are there the new ones open it; where they were moved away a new policy is due."""
    new(folder, code=0)
    federator = folder / "foltr-operator" / "federator.json"
    rotated = foltr("federator", "rotate-key", cwd=folder, code=3)
    assert "The file still opens the verify key of policy 1" in rotated.stdout
    assert read_credentials(federator, "federator").can_check(newest(folder).policy)
    federator.unlink()
    rotated = foltr("federator", "rotate-key", cwd=folder)
    assert "The file cannot open the verify key of policy 1" in rotated.stdout
    assert "foltr policy new" in rotated.stdout
    new(folder, number=1, code=0)
    assert read_credentials(federator, "federator").can_check(newest(folder).policy)
    # A folder that was restored from before a rotation knows no sealing key: what makes one is named.
    file = folder / "foltr-operator" / "operator.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "federator_sealing_key": None}))
    assert "foltr federator rotate-key" in new(folder, number=2, code=2).stderr
    new(folder, "--norm-proof", "none", number=2, code=0)
    assert "verify key" not in foltr("federator", "rotate-key", cwd=folder).stdout


def test_a_policy_is_shown_as_it_was_signed(folder):
    """By version, with the helpers' keys; who is enrolled afterwards carries it; a new one needs new keys."""
    new(folder, code=0)
    first = newest(folder)
    foltr("device", "enrol", "device-2", cwd=folder, code=0)
    assert read_credentials(folder / "device-1.json", "device").policy is None
    assert read_credentials(folder / "device-2.json", "device").signed_policy == first
    assert "foltr helper keys" in new(folder, code=2).stderr  # the keys of an older policy
    new(folder, "--epsilon", 4, "--rounds", 6, number=1, code=0)
    shown = json.loads(foltr("policy", "show", "--json", cwd=folder).stdout)
    assert (shown["policy"]["version"], shown["policy"]["epsilon"]) == (2, 4.0)
    assert shown["policy"]["max_participations"] == 6  # noise for more would be paid for nothing
    done = foltr("policy", "show", "--version", 1, cwd=folder, code=0)
    assert first.hash.hex() in done.stdout
    assert "1e-06" in done.stdout
    for helper in first.policy.helpers:
        assert f"helper {helper.name}: signs with {helper.signing_key.hex()}" in done.stdout
    foltr("policy", "show", "--version", 3, cwd=folder, code=2)


def test_a_wrong_option_signs_nothing(folder):
    """Exit code 2, one line that names it, and no policy."""
    for options, named in (
        (("--mechanism", "laplace"), "--mechanism"),
        (("--norm-proof", "l1"), "--norm-proof: Input should be 'l2' or 'none'"),
        (("--dim", MAX_SECURE_DIM + 1), f"less than or equal to {MAX_SECURE_DIM}"),
        (("--n-max", 5), "n_max"),
        (("--helper", "missing.json"), "missing.json"),
    ):
        done = new(folder, *options, code=2)
        assert named in done.stderr, options
        assert not (folder / "foltr-operator" / "policies").exists(), options


def test_without_a_policy_or_a_broker_nothing_is_published(folder):
    """The command that makes a policy is named; exit code 3 without a broker, and the policy is still there."""
    for command in ("show", "publish"):
        assert "foltr policy new" in foltr("policy", command, cwd=folder, code=2).stderr, command
    new(folder, code=0)
    foltr("policy", "publish", cwd=folder, code=3)
    assert json.loads(foltr("policy", "show", "--json", cwd=folder).stdout)["policy"]["published"] is False


async def published(folder, access: BrokerAccess):
    """What is retained of the policy after the command."""
    done = await asyncio.to_thread(foltr, "policy", "publish", cwd=folder, code=0)
    assert newest(folder).hash.hex() in done.stdout
    message = await heard(access, [TOPIC])
    assert message.retained
    return message.payload


async def test_a_restored_folder_publishes_no_policy_that_devices_would_refuse(mosquitto_server, tmp_path):
    """It made another second policy than the broker has: that one is taken back, and the next follows from it."""
    access = access_to(mosquitto_server.url)
    where = ("--federation", "mail", "--broker", access.broker_url, "--privacy", "secure")
    foltr("device", "enrol", "device-1", *where, cwd=tmp_path, code=0)
    new(tmp_path, number=1, code=0)
    key = read_credentials(tmp_path / "device-1.json", "device").enrolment_public_key
    assert read_policy(await published(tmp_path, access), key, "mail") == newest(tmp_path)
    assert json.loads(foltr("policy", "show", "--json", cwd=tmp_path).stdout)["policy"]["published"] is True
    folder, copy = tmp_path / "foltr-operator", tmp_path / "copy"
    shutil.copytree(folder, copy)
    new(tmp_path, number=2, code=0)
    await published(tmp_path, access)
    known = newest(tmp_path)
    shutil.rmtree(folder)
    copy.rename(folder)
    new(tmp_path, number=3, code=0)
    assert newest(tmp_path).policy.version == 2
    refused = foltr("policy", "publish", cwd=tmp_path, code=2)
    assert "does not follow from policy 2, which devices know" in refused.stderr
    assert "foltr policy new" in refused.stderr
    assert (await heard(access, [TOPIC])).payload == known.signed
    new(tmp_path, number=4, code=0)
    await published(tmp_path, access)
    assert newest(tmp_path).policy.version == 3
    assert newest(tmp_path).policy.predecessors[0] == known.hash


async def test_a_device_of_a_guarded_broker_hears_the_policy(guarded_broker, tmp_path):
    """The access list lets the operator write it and a device read it."""
    operator = ("--operator", guarded_broker.operator_dir)
    foltr("device", "enrol", "device-1", *operator, "--privacy", "secure", cwd=tmp_path, code=0)
    new(tmp_path, *operator, code=0)
    await asyncio.to_thread(foltr, "policy", "publish", *operator, cwd=tmp_path, code=0)
    device = read_credentials(tmp_path / "device-1.json", "device")
    message = await heard(device.broker, [TOPIC], "device-1")
    assert read_policy(message.payload, device.enrolment_public_key, "mail").policy.version == 1
