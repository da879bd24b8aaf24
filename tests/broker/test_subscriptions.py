"""What each user of a provisioned broker may subscribe to, on a real Mosquitto, with passwords and certificates."""

import contextlib
import ctypes
import itertools
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.mqtt_subscriber import Subscriber, deep_filters
from support.servers import ProvisionedMosquitto

from foltr.broker.access import subscription_rules
from foltr.broker.broker_records import ACL_NAME, CONFIG_NAME, PLUGIN_NAME
from foltr.broker.listed_users import provision_helper, provision_worker
from foltr.broker.provision import reload_broker
from foltr.broker.subscription_plugin import build_plugin
from foltr.broker.users import provision_service, provision_tokens
from foltr.core.errors import SettingsError
from foltr.core.protocol.topics import Topics

ROOT, TOPICS = "foltr/v1/fed", Topics("fed")
TOKEN = "00000000000000aa"  # noqa: S105
DAY = timedelta(days=1)
MODES = ["passwords", "mtls"]

EVERYBODY = [
    *(TOPICS.model, TOPICS.round, TOPICS.anchor, TOPICS.evaluation, TOPICS.pace, TOPICS.policy, TOPICS.schema),
    *(TOPICS.roster, TOPICS.roster_chunks, TOPICS.federator_key, TOPICS.federator_status, TOPICS.audit_head),
    *(TOPICS.authorities, TOPICS.operator_key, TOPICS.unlearning_round, f"{ROOT}/unlearning/+"),
    *(TOPICS.model_chunk(0), TOPICS.model_chunk(999), TOPICS.anchor_chunk(12)),
]
UPDATES = f"{ROOT}/clients/+/updates"
SHARED = f"$share/foltr-0123456789abcdef/{UPDATES}"
GRANTED = {
    "device": [*EVERYBODY, f"{ROOT}/clients/device-1/inbox"],
    "token": [*EVERYBODY, TOPICS.enrolment_answer(TOKEN)],
    "helper": [*EVERYBODY, f"{ROOT}/helpers/north/requests", TOPICS.kept_enrolments],
    "worker": [*EVERYBODY, SHARED, f"{ROOT}/clients/probe-1/updates", f"{ROOT}/clients/@ingest.1/inbox"],
    "desk": [*EVERYBODY, TOPICS.enrolment_requests, TOPICS.desk_head],
    "federator": [
        *(*TOPICS.from_all_clients(), TOPICS.roster, TOPICS.roster_chunks, TOPICS.operator, TOPICS.authorities),
        *(TOPICS.policy, TOPICS.helper_answers("+"), TOPICS.audit_head, f"{ROOT}/clients/@federator/inbox"),
    ],
    "operator": [f"{ROOT}/#", TOPICS.operator_answers, "$SYS/#", "foltr/doctor/@operator", f"{ROOT}/clients/+/status"],
}
NOBODYS = [
    *("#", "+", "+/+/+/+/+/+", "foltr/#", "foltr/v1/+/#", "foltr/v1/other/model", "foltr/v1/other/#", "x", "/", "a//b"),
    *("$share/g/#", f"$share/g/{ROOT}/#", "$CONTROL/#", "$SYS", "foltr/doctor/device-1", f"foltr/doctor/{'x/' * 180}x"),
    *("/".join("x" * 190), "%u", ROOT),
]
NO_DEVICES = [
    *(f"{ROOT}/#", f"{ROOT}/clients/#", f"{ROOT}/clients/+/inbox", f"{ROOT}/clients/device-2/inbox", "$SYS/#"),
    *(f"{ROOT}/clients/device-10/inbox", f"{ROOT}/clients/device-1/#", f"{ROOT}/clients/device-1/status"),
    *(
        UPDATES,
        f"{ROOT}/clients/device-1/updates",
        f"{ROOT}/clients/%u/inbox",
        f"{ROOT}/clients/%u/inbox/x",
        f"{ROOT}/model/#",
        f"{ROOT}/model/x",
    ),
    *(f"{ROOT}/model/chunks/1000", f"{ROOT}/model/chunks/01", f"{ROOT}/model/chunks/+", f"{ROOT}/model/chunks/-1"),
    *(f"{ROOT}/unlearning/#", f"{ROOT}/unlearning/7", f"{ROOT}/tokens/+/answer", f"{ROOT}/tokens/#"),
    *(f"{ROOT}/helpers/north/requests/x", f"{ROOT}/helpers/+/requests", f"{ROOT}/helpers/south/requests"),
    *(TOPICS.operator, TOPICS.operator_answers, "foltr/doctor/@operator", f"{ROOT}/model/", f"/{ROOT}/model"),
    *(f"$share/g/{ROOT}/model", f"$share//{UPDATES}", f"$share/+/{UPDATES}", f"$share/{'g' * 65}/{UPDATES}"),
]
NOT_WORKERS = [SHARED, f"$share/foltr-ingest/{UPDATES}"]
REFUSED = {
    **{user: [*NOBODYS, *NO_DEVICES, *NOT_WORKERS] for user in ("device", "token", "helper", "desk")},
    "worker": [*NOBODYS, *(each for each in NO_DEVICES if not each.endswith("/device-1/updates") and each != UPDATES)],
    "federator": [*NOBODYS, *NOT_WORKERS, "$SYS/#", "foltr/doctor/@federator"],
    "operator": [*NOBODYS, *NOT_WORKERS],
}


def provisioned(folder, mode):
    server = ProvisionedMosquitto(folder, mode)
    server.mode = mode
    return server


@pytest.fixture(scope="module", params=MODES)
def server(request, tmp_path_factory):
    """One broker for the module, with a user of each kind."""
    server = provisioned(tmp_path_factory.mktemp("mosquitto"), request.param)
    server.start()
    server.users = {name: server.service(name) for name in ("federator", "operator")} | {
        "device": server.enrol("device-1")[0],
        "other": server.enrol("device-2")[0],
        "desk": provision_service(server.operator_dir, "desk"),
        "token": provision_tokens(server.operator_dir, [TOKEN], DAY)[TOKEN],
        # After the broker has started, as the worker: what may be subscribed to is not read again.
        "helper": provision_helper(server.operator_dir, "north"),
        "worker": provision_worker(server.operator_dir, "1"),
    }
    reload_broker(server.operator_dir)
    yield server
    server.stop()


def peak_bytes(server):
    """The most memory that the broker has had."""
    status = Path("/proc", str(server.pid), "status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def flood(credentials, n, each=25):
    """Subscribe to so many filters, in a session that is kept; how many were granted."""
    filters, n_granted = list(itertools.islice(deep_filters(), n)), 0
    while filters:
        with contextlib.suppress(ConnectionResetError), Subscriber(credentials, clean_session=False) as subscriber:
            while filters:
                n_granted += sum(subscriber.granted(*filters[:each]))
                del filters[:each]
    return n_granted


@pytest.mark.parametrize("user", GRANTED)
def test_each_gets_what_its_part_needs_and_nothing_else(server, user):
    """Every filter that the code of its part subscribes to; and neither another's, nor a wildcard, nor a group."""
    with Subscriber(server.users[user]) as subscriber:
        granted = dict(zip(GRANTED[user], subscriber.granted(*GRANTED[user]), strict=True))
        refused = dict(zip(REFUSED[user], subscriber.granted(*REFUSED[user]), strict=True))
    assert [each for each, is_granted in granted.items() if not is_granted] == []
    assert [each for each, is_granted in refused.items() if is_granted] == []


def test_what_is_refused_is_not_heard(server):
    """An answer that says no, and a subscription that is there all the same, would be no refusal."""
    with Subscriber(server.users["device"]) as device, Subscriber(server.users["other"]):
        assert device.granted(SHARED, f"{ROOT}/clients/device-2/inbox") == [False, False]
        assert device.granted(f"{ROOT}/clients/device-1/inbox") == [True]


@pytest.mark.parametrize("user", ["device", "token"])
def test_a_flood_of_subscriptions_costs_the_broker_nothing(server, user):
    """Whoever may send anything may send these; each is refused, others are served, and no memory is gone."""
    before = peak_bytes(server)
    n_granted = flood(server.users[user], 5_000)
    with Subscriber(server.users["other"]) as other:
        assert other.granted(TOPICS.model) == [True]
    assert n_granted == 0
    assert peak_bytes(server) - before < 20_000_000


def test_a_packet_full_of_filters_holds_nobody_up(server):
    """Mosquitto would judge all 100,000 of them before it serves anybody else: it ends the connection early on."""
    with Subscriber(server.users["device"]) as device, pytest.raises(ConnectionError):
        device.granted(*["x"] * 100_000)
    with Subscriber(server.users["device"]) as device:
        assert device.granted(*["x"] * 50, TOPICS.model)[-1]


def test_a_connection_pays_for_no_earlier_one(server):
    """Mosquitto keeps a new client where one that left was: what that one was refused does not count."""
    for i in range(20):
        with Subscriber(server.users["device"]) as device:
            assert not any(device.granted(*["x"] * 60)), f"connection {i}"


def test_all_that_is_granted_to_a_device_is_little(server):
    """Every number that is a chunk's, of both models: the largest session that a device may have."""
    chunks = [chunk(i) for i in range(1000) for chunk in (TOPICS.model_chunk, TOPICS.anchor_chunk)]
    before = peak_bytes(server)
    with Subscriber(server.users["device"]) as device:
        assert all(all(device.granted(*chunks[i : i + 100])) for i in range(0, len(chunks), 100))
    assert peak_bytes(server) - before < 5_000_000


def test_it_holds_after_a_reload_and_a_restart(tmp_path):
    """Mosquitto reads its other files again on SIGHUP, and the plugin's options never until it starts."""
    server = provisioned(tmp_path, "passwords")
    server.start()
    (device,) = server.enrol("device-1")
    for again in (lambda: reload_broker(server.operator_dir), server.stop, server.kill):
        with Subscriber(device) as subscriber:
            assert subscriber.granted("#", TOPICS.model) == [False, True]
            if again():
                assert subscriber.granted("#", TOPICS.model) == [False, True]
        if server.pid is None:
            server.start()
    server.stop()


def without_plugin(server):
    """The configuration as it was before there was a plugin."""
    path = server.broker_dir / CONFIG_NAME
    whole = path.read_text()
    path.write_text("".join(line for line in whole.splitlines(keepends=True) if not line.startswith("plugin")))
    return path, whole


def test_a_session_from_before_the_plugin_is_gone_with_the_brokers_database(tmp_path):
    """Mosquitto judges no subscription that it has kept: so its database goes once, which leaves users as they are."""
    server = provisioned(tmp_path, "passwords")
    path, whole = without_plugin(server)
    server.start()
    (device,) = server.enrol("device-1")
    assert flood(device, 1_000) == 1_000
    server.stop()
    database = server.broker_dir / "data" / "mosquitto.db"
    size = database.stat().st_size
    path.write_text(whole)
    for is_kept in (True, False):
        server.start()
        with Subscriber(device, clean_session=False) as attacker:
            assert attacker.granted("a/b/c") == [False]
        server.stop()
        assert (database.stat().st_size > size // 2) is is_kept
        database.unlink()


def test_a_broker_without_its_plugin_does_not_start(tmp_path):
    """It would grant everything."""
    server = provisioned(tmp_path, "passwords")
    (server.broker_dir / PLUGIN_NAME).unlink()
    with pytest.raises(RuntimeError, match="did not start"):
        server.start()


def test_options_that_are_misread_start_no_broker(tmp_path):
    """A rule that the plugin cannot read, or none at all."""
    server = provisioned(tmp_path, "passwords")
    path, whole = server.broker_dir / CONFIG_NAME, (server.broker_dir / CONFIG_NAME).read_text()
    lines = whole.splitlines(keepends=True)
    for wrong in (
        whole.replace("plugin_opt_subscribe * ", "plugin_opt_subscribes * "),
        "".join(line for line in lines if not line.startswith("plugin_opt_")),
        whole.replace("plugin_opt_subscribe * ", "plugin_opt_subscribe *", 1),
    ):
        path.write_text(wrong)
        with pytest.raises(RuntimeError, match="did not start"):
            server.start()


@pytest.fixture(scope="module")
def grants(tmp_path_factory):
    """Whether any rule of the federation grants a filter to a user, as the plugin finds."""
    path = tmp_path_factory.mktemp("plugin") / PLUGIN_NAME
    path.write_bytes(build_plugin())
    judge = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL | 1).foltr_rule_grants
    judge.restype, judge.argtypes = ctypes.c_bool, [ctypes.c_char_p] * 3
    rules = [str(rule).encode() for rule in subscription_rules("fed")]
    return lambda user, asked: any(judge(rule, user.encode(), asked.encode()) for rule in rules)


LEVELS = st.one_of(
    st.sampled_from(["foltr", "v1", "fed", "clients", "inbox", "+", "#", "model", "chunks", "updates", "$share", "%u"]),
    st.text("a/+#%u@.1", max_size=6),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(user=st.sampled_from(["device-1", "a", "x.y_z"]), levels=st.lists(LEVELS, max_size=9))
def test_a_device_may_subscribe_to_few_filters_whatever_it_asks_for(grants, user, levels):
    """All that is granted is one of those that its part needs: so it is short, and there are not many."""
    asked = "/".join(levels)
    if grants(user, asked):
        numbers = asked.removeprefix(f"{ROOT}/model/chunks/").removeprefix(f"{ROOT}/anchor/chunks/")
        assert asked in {*EVERYBODY, f"{ROOT}/clients/{user}/inbox"} or numbers.isdigit()


@pytest.mark.parametrize("user", ["", "a/b", "+", "#", "@ingest.+", "@ingest.a/b"])
def test_a_name_that_is_no_level_gets_nothing(grants, user):
    """No user of a federation is called so; a certificate of another maker might name one."""
    assert not grants(user, TOPICS.model)


def test_the_plugin_is_named_where_it_cannot_be_built(tmp_path, monkeypatch):
    """Without it one device could take all of the broker's memory: an error, with what to do, and no broker."""
    build_plugin.cache_clear()
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(SettingsError, match=r"no-such-compiler.*apt-get install gcc.*--plugin"):
        ProvisionedMosquitto(tmp_path, "passwords")
    assert not (tmp_path / "broker" / ACL_NAME).exists()
