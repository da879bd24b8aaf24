"""The commands that give orders: sent until the federator answers, in their order."""

import json
import shutil

from cli.commands import foltr
from cli.operator.test_enrol import enrolled
from cli.silence import give_up_once
from support.answering_federator import answering
from support.servers import free_port


def ordered(folder, *command):
    """The command, where a federator answers that device-7 has joined."""
    with answering(folder / "foltr-operator", folder / "device-7.json").serve() as federator:
        return foltr(*command, cwd=folder), federator


def test_orders_are_obeyed_and_answered(mqtt_broker, tmp_path):
    """A quarantine, what lifts it, what closes a proposal, and a deadline for the round that is open."""
    enrolled(tmp_path, "--broker", mqtt_broker)
    quarantine = ("device", "quarantine", "device-7")
    deadline = ("rounds", "deadline", "1", "--max-time", "90")
    orders = (
        ((*quarantine, "--reason", "flips signs"), "quarantine_client", "device-7 of mail is in quarantine"),
        ((*quarantine, "--lift"), "lift_quarantine", "device-7 of mail is out of quarantine"),
        ((*quarantine, "--dismiss"), "dismiss_proposals", "device-7 of mail is no longer proposed for quarantine"),
        (deadline, "set_deadline", "round 1 of mail lasts 90 s from its opening"),
    )
    with answering(tmp_path / "foltr-operator", tmp_path / "device-7.json").serve() as federator:
        for number, (words, _, said) in enumerate(orders, 1):
            assert f"Order {number} is obeyed: {said}" in foltr(*words, cwd=tmp_path, code=0).stdout
    assert [order.kind for order in federator.orders.values()] == [kind for _, kind, _ in orders]
    assert [order.client_id for order in federator.orders.values()] == ["device-7"] * 3 + [None]
    assert federator.state.round.closes_at == 1_090.0


def test_a_refused_order_is_an_error_that_says_why(mqtt_broker, tmp_path):
    """Exit code 1; its number is used up, and it is not sent again."""
    enrolled(tmp_path, "--broker", mqtt_broker)
    done, federator = ordered(tmp_path, "device", "quarantine", "device-77", "--lift")
    assert done.returncode == 1
    assert "refuses order 1: unknown_client, no client of this name has ever joined" in done.stderr
    assert [(order.outcome, order.client_id) for order in federator.orders.values()] == [("refused", None)]
    shown = json.loads(foltr("operator", "orders", "--json", cwd=tmp_path).stdout)["orders"]
    assert [(order["number"], order["state"], order["code"]) for order in shown] == [(1, "refused", "unknown_client")]
    assert "No order waits" in foltr("operator", "send", cwd=tmp_path).stdout


def test_an_order_without_an_answer_is_kept_and_goes_with_the_next(mqtt_broker, tmp_path, monkeypatch):
    """The federator is away: exit code 3, with what is the matter; then all are obeyed, in their order."""
    enrolled(tmp_path, "--broker", mqtt_broker)
    with monkeypatch.context() as away:
        give_up_once(away)
        away = foltr("device", "quarantine", "device-7", "--reason", "flips signs", cwd=tmp_path, code=3)
    told, error = away.stderr.splitlines()
    assert told == "waiting for the federator's answer; the broker has the order; check that the federator runs"
    assert "Order 1 is kept in foltr-operator and sent with the next order" in error
    table = foltr("operator", "orders", cwd=tmp_path).stdout
    assert "quarantine_client" in table
    assert "unanswered" in table
    done, federator = ordered(tmp_path, "device", "quarantine", "device-7", "--lift")
    assert done.returncode == 0, done.stderr
    assert [order.kind for order in federator.orders.values()] == ["quarantine_client", "lift_quarantine"]
    assert all(order.outcome == "obeyed" for order in federator.orders.values())


def test_a_restored_folder_goes_on_above_what_the_federator_knows(mqtt_broker, tmp_path):
    """And says which numbers it has lost."""
    enrolled(tmp_path, "--broker", mqtt_broker)
    folder = tmp_path / "foltr-operator"
    shutil.copytree(folder, tmp_path / "backup")
    deadline = ("rounds", "deadline", "1", "--max-time")
    with answering(folder).serve() as federator:
        for seconds in ("50", "60"):
            foltr(*deadline, seconds, cwd=tmp_path, code=0)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "backup", folder)
        done = foltr(*deadline, "70", cwd=tmp_path, code=0)
    assert "does not have orders 1 to 2, which the federator knows: was it restored from a backup?" in done.stdout
    assert "Order 3 is obeyed" in done.stdout
    assert (sorted(federator.orders), federator.state.round.closes_at) == ([1, 2, 3], 1_070.0)
    shown = json.loads(foltr("operator", "orders", "--json", cwd=tmp_path).stdout)["orders"]
    assert [(order["number"], order["state"]) for order in shown] == [(1, "lost"), (2, "lost"), (3, "obeyed")]


def test_a_forgotten_name_is_nowhere_in_the_folder(mqtt_broker, tmp_path):
    """Not in the register, nor in the roster, nor in any order; and it is not enrolled again."""
    enrolled(tmp_path, "--broker", mqtt_broker)
    folder = tmp_path / "foltr-operator"
    foltr("device", "enrol", "another-1", cwd=tmp_path, code=0)
    with answering(folder, tmp_path / "device-7.json", tmp_path / "another-1.json").serve() as federator:
        for command in (
            ("device", "quarantine", "device-7", "--reason", "flips signs"),
            ("device", "revoke", "another-1"),
            ("erasure", "request", "device-7"),
        ):
            done = foltr(*command, cwd=tmp_path, code=0)
        assert "Order 3 is obeyed: device-7 is out of mail. It is erasing" in done.stdout
        again = foltr("device", "enrol", "device-7", "--out", "other.json", cwd=tmp_path)
        assert (again.returncode, "was forgotten, and its name is not used again" in again.stderr) == (2, True)
        named = [path.name for path in folder.rglob("*") if path.is_file() and b"device-7" in path.read_bytes()]
        assert named == []
        # What stands in the place of the orders is taken for them, and forgets in a database that was restored.
        foltr("rounds", "deadline", "1", "--max-time", "50", cwd=tmp_path, code=0)
    kinds = [order.kind for order in federator.orders.values()]
    assert kinds[:3] == ["quarantine_client", "revoke_client", "forget_client"]
    with answering(folder, tmp_path / "device-7.json").serve() as restored:
        done = foltr("rounds", "deadline", "1", "--max-time", "60", cwd=tmp_path, code=0)
    assert "The federator had lost " in done.stdout
    assert [order.kind for order in restored.orders.values()][:3] == ["void_order", "revoke_client", "forget_tombstone"]
    assert not restored.state.members.is_known("device-7")


def test_a_deadline_that_cannot_be_is_refused(tmp_path):
    """It is more than nothing, and at most thirty days; a broker that is away is another exit code."""
    enrolled(tmp_path, "--broker", f"mqtt://127.0.0.1:{free_port()}")
    for seconds in ("0", "-1", "nan", "inf", "2592001"):
        assert "max" in foltr("rounds", "deadline", "4", "--max-time", seconds, cwd=tmp_path, code=2).stderr, seconds
    foltr("rounds", "deadline", "4", "--max-time", "90", cwd=tmp_path, code=3)
