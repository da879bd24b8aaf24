"""The Mosquitto configuration: keeps what its defaults would lose.

Only options that both Mosquitto 2.0.11 and 2.1 take. broker/access.py says what each user may do. An anonymous listener
opens to a network only on request.

The cost of one absent subscriber is bounded by its queue: what does not fit is dropped, and its sender sends again.
``memory_limit`` guards against everything else, not a federation's ordinary work: at the limit Mosquitto disconnects
every sender, and may then fail to restart from what it has saved. So it is twice that queue.
"""

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path

from foltr.broker.access import GROUP, NAME, NUMBER, USER, subscription_rules
from foltr.broker.broker_records import (
    ACL_NAME,
    CA_NAME,
    CONFIG_NAME,
    PASSWORDS_NAME,
    PID_NAME,
    PLUGIN_NAME,
    REVOKED_NAME,
    SERVER_CERTIFICATE_NAME,
    SERVER_KEY_NAME,
    Mode,
)
from foltr.broker.files import Owner, owner_named, replace_file
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES
from foltr.core.user_files import FileKind, read_file

# A payload of twice what a sender may send, a topic of at most 64 KB, and a few properties: a message somewhat too
# large still reaches the federator, whose receipt says so.
MAX_PACKET_SIZE = 2 * MAX_MESSAGE_BYTES + 128 * 1024
MAX_QUEUED_MESSAGES = 100_000
MAX_QUEUED_BYTES = 1024**3
MAX_INFLIGHT_MESSAGES = 1000
# A federation of 1000 devices needs 4 MB. The full queue of its federator is 1.02 GiB, and when it returns, what is in
# flight to it is there twice: at most 1000 messages of 512 KB.
MEMORY_LIMIT = 2 * MAX_QUEUED_BYTES
AUTOSAVE_INTERVAL_S = 30

_HOST = re.compile(r"[A-Za-z0-9._:%-]+")
_USER = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class MosquittoSettings:
    """The settings in which brokers differ.

    Attributes:
        folder: absolute; holds the configuration and the files that it names.
        data_dir: absolute; Mosquitto keeps sessions and queued messages there.
        listen: the address to bind.
        mode: how clients prove who they are, with TLS; None: neither.
        federation: whose topics may be subscribed to, if clients prove who they are.
        allow_anonymous_network: accept that with anonymous access everybody who reaches an address other than loopback
            takes part, e.g. on the private network of a Compose project.
        max_connections: clients at one time; None: as many as the system has file descriptors for.
        user: the user that Mosquitto becomes when root starts it.
        uid: that user by number, if this machine does not know it: if root writes the files, they are given to it, and
            to the group of the same number.
    """

    folder: Path
    data_dir: Path
    listen: str = "127.0.0.1"
    port: int = 1883
    mode: Mode | None = None
    federation: str = "default"
    allow_anonymous_network: bool = False
    max_connections: int | None = None
    user: str = "mosquitto"
    uid: int | None = None

    def owner(self) -> Owner | None:
        """Return the owner of its files, as far as they can be given away."""
        if self.uid is None:
            return owner_named(self.user)
        return Owner(self.uid, self.uid) if os.geteuid() == 0 else None


def mosquitto_config(settings: MosquittoSettings) -> str:
    """The text of mosquitto.conf. Every line has its reason above it.

    Raises:
        SettingsError: a value Mosquitto would misread, or an anonymous listener open to a network.
    """
    _check(settings)
    return f"""\
# Mosquitto for foltr, written by `foltr broker config`. Fits Mosquitto 2.0.11 and later.
#
{_access_note(settings)}

# Without an address Mosquitto listens on every interface.
listener {settings.port} {settings.listen}
{_connection_limit(settings)}{_listener_options(settings)}
# Stated because the default depends on the version and on whether there is a listener line.
allow_anonymous {"true" if settings.mode is None else "false"}
{_authentication_options(settings)}
# Started as root, Mosquitto becomes this user. If the user cannot write to persistence_location, the only sign
# is "Error: Permission denied" in the log, and everything queued is lost at the next restart.
user {settings.user}

# Off by default: sessions, retained models and queued messages would be gone after a restart.
persistence true

# By default the directory Mosquitto happens to be started in.
persistence_location {settings.data_dir}/

# 30 minutes by default. After SIGKILL or a power cut, what was queued since the last save is lost; after SIGTERM
# nothing is. Devices resend an update until the federator has receipted it.
autosave_interval {AUTOSAVE_INTERVAL_S}

# 1000 by default, and what does not fit is dropped without telling the sender: while a subscriber paused for
# 3 seconds, 4000 of 5000 QoS 1 messages were lost. 0 means no limit and has had bugs.
max_queued_messages {MAX_QUEUED_MESSAGES}

# No limit by default: a subscriber that stays away could take all memory. The first of the two limits counts.
max_queued_bytes {MAX_QUEUED_BYTES}

# No limit by default: retained messages count in no queue, and the system would end the broker. At the limit
# Mosquitto 2.0 disconnects a client whose message does not fit ("disconnected due to out of memory") and serves the
# others. Twice the largest queue: a federator that stays away, and returns, needs 1.5 times that; 1000 devices 4 MB.
memory_limit {MEMORY_LIMIT}

# 20 by default: a federator that returns to a long queue would wait a round trip for every 20 messages.
max_inflight_messages {MAX_INFLIGHT_MESSAGES}

# The default depends on the version: none in 2.0, 2 MB from 2.1 on. A client that sends more is disconnected. (With
# message_size_limit the broker would confirm its message and discard it.)
max_packet_size {MAX_PACKET_SIZE}

# Without persistent_client_expiration: Mosquitto 2.0.11 crashes over sessions that may expire, after a reload that
# refuses absent ones. Only the federator has a session that remains; it has one queue, with a limit.

# Off by default, which makes each small QoS 1 exchange wait 40 ms for a delayed acknowledgement.
set_tcp_nodelay true

# Counters below $SYS/broker, among them publish/messages/dropped: the way to see whether anything was lost.
sys_interval 10

# To standard error, where the service manager collects it.
log_dest stderr

# The default without "information", which is a line at every save. That messages are being dropped is a notice.
log_type error
log_type warning
log_type notice

# By default a line for each connection, with the client's name: it would be here when the client is forgotten.
connection_messages false

# By default seconds since 1970.
log_timestamp_format %Y-%m-%dT%H:%M:%S%z
"""


def write_config(settings: MosquittoSettings, *, force: bool = False) -> Path:
    """Write ``mosquitto.conf`` into its folder, create the data directory, and return the file's path.

    Raises:
        SettingsError: as `mosquitto_config`; or a different file exists and ``force`` is not given; or Mosquitto's user
            cannot access the data directory.
        UnavailableError: a directory or the file cannot be written.
    """
    text = mosquitto_config(settings)
    path = settings.folder / CONFIG_NAME
    try:
        refuse_to_replace(path, text, force=force)
        make_folders(settings)
        replace_file(path, text, mode=0o644)
    except OSError as error:
        raise UnavailableError(
            f"{error.filename or path}: {error.strerror or error}. Choose a directory you can write to with --out."
        ) from error
    return path


def make_folders(settings: MosquittoSettings) -> None:
    """Make the folders, those above them too; others may enter them under any umask, because Mosquitto's user must.

    Raises:
        SettingsError: Mosquitto's user cannot enter the data directory.
        OSError: one cannot be made.
    """
    for folder in (settings.folder, settings.data_dir):
        for each in reversed([above for above in (folder, *folder.parents) if not above.exists()]):
            each.mkdir()
            each.chmod(0o755)
    if os.geteuid() == 0:
        _hand_over(settings)


def refuse_to_replace(path: Path, text: str, *, force: bool) -> None:
    """SettingsError if ``path`` holds something other than ``text`` and ``force`` is not given."""
    if not force and path.exists() and read_file(path, FileKind.REGISTER) != text.encode():
        raise SettingsError(
            f"{path} exists and differs from what would be written. Add --force to replace it, "
            "or write elsewhere with --out."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``, as far as its name tells."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check(settings: MosquittoSettings) -> None:
    if not _HOST.fullmatch(settings.listen):
        raise SettingsError(f"listen: {settings.listen!r} is not an address; give an IP address or a host name.")
    if not 1 <= settings.port <= 65535:
        raise SettingsError(f"port: {settings.port} is not a port; give one from 1 to 65535.")
    _check_path("data_dir", settings.data_dir)
    _check_path("folder", settings.folder)
    if settings.max_connections is not None and settings.max_connections < 1:
        raise SettingsError(f"max_connections: {settings.max_connections}; give 1 or more, or none for no limit.")
    if not _USER.fullmatch(settings.user):
        raise SettingsError(f"user: {settings.user!r} is not a user name; give one of this machine.")
    if settings.mode is None and not settings.allow_anonymous_network and not is_loopback(settings.listen):
        raise SettingsError(
            f"listen: on {settings.listen} anybody who reaches port {settings.port} could take part, send updates "
            "and read the models. Listen on 127.0.0.1, ask for passwords with --tls or for certificates with "
            "--mtls, or, if only trusted machines reach it, add --allow-anonymous-network."
        )


def _check_path(key: str, path: Path) -> None:
    if not path.is_absolute() or not str(path).isprintable():
        raise SettingsError(
            f"{key}: {str(path)!r}; give an absolute path, which does not depend on where Mosquitto is started, "
            "without line breaks."
        )


def _access_note(settings: MosquittoSettings) -> str:
    match settings.mode:
        case None:
            return _ANONYMOUS_LOCAL if is_loopback(settings.listen) else _ANONYMOUS_NETWORK
        case Mode.PASSWORDS:
            return "# Every client needs a user name and a password; connections are encrypted."
        case Mode.MTLS:
            return "# Every client needs a certificate of this federation's authority; connections are encrypted."


_ANONYMOUS_LOCAL = """\
# No access control: every process on this machine can take part, send updates and read
# the models. Other machines cannot connect."""
_ANONYMOUS_NETWORK = """\
# WARNING: no access control and no encryption. Everybody who reaches this listener can take
# part, send updates under any name and read the models. Keep it on a network that only trusted machines
# reach. This was asked for with --allow-anonymous-network."""


def _connection_limit(settings: MosquittoSettings) -> str:
    if settings.max_connections is None:
        return ""
    return f"""\

# No limit by default: everybody who reaches the listener could use up this process's file descriptors.
max_connections {settings.max_connections}
"""


def _listener_options(settings: MosquittoSettings) -> str:
    """The lines that belong to the listener above them."""
    folder = settings.folder
    if settings.mode is None:
        return ""
    lines = [
        "# Off by default: then any client could take the MQTT client id of another, which throws that one out and",
        "# takes over its session with the messages in it. So one user is one session: a second connection of the",
        "# same user ends the first.",
        "use_username_as_clientid true",
        "",
        "# The authority whose client certificates count.",
        f"cafile {folder / CA_NAME}",
        "# What this broker shows to clients, issued by that authority.",
        f"certfile {folder / SERVER_CERTIFICATE_NAME}",
        "# Its key: readable for the user below only.",
        f"keyfile {folder / SERVER_KEY_NAME}",
        "# The least version. Older ones are broken.",
        "tls_version tlsv1.2",
    ]
    if settings.mode is Mode.MTLS:
        lines += [
            "",
            "# Off by default: without a certificate of the authority nobody gets as far as MQTT.",
            "require_certificate true",
            "# Off by default. The name in the certificate is the user of the access list, not what a client claims.",
            "use_identity_as_username true",
            "# None by default: a revoked device could connect until its certificate ends. Asked at each handshake,",
            "# read again on SIGHUP.",
            f"crlfile {folder / REVOKED_NAME}",
        ]
    return "\n".join(["", *lines, ""])


def _authentication_options(settings: MosquittoSettings) -> str:
    """The lines for the whole broker that go with ``allow_anonymous false``."""
    folder, lines = settings.folder, list[str]()
    if settings.mode is None:
        return ""  # users have no names to judge by
    if settings.mode is Mode.PASSWORDS:
        lines += [
            "# Users and hashes of their passwords; read again on SIGHUP.",
            f"password_file {folder / PASSWORDS_NAME}",
            "",
        ]
    lines += [
        "# By default every user may read and write everything. Read again on SIGHUP.",
        f"acl_file {folder / ACL_NAME}",
        "",
        "# None by default. Tells `foltr device enrol` whom to send that SIGHUP.",
        f"pid_file {settings.data_dir / PID_NAME}",
        "",
        "# None by default: Mosquitto grants every subscription, and each takes memory, until one user has taken all.",
        "# With it a user may subscribe to the filters named below for its name, and to nothing else.",
        f"plugin {folder / PLUGIN_NAME}",
        f"# Each a user, or how users' names begin, and a filter. {USER} is the name, {NAME} what follows that",
        f"# beginning, {NUMBER} a number from 0 to 999, {GROUP} the name of a group. Read when the broker starts.",
        *(f"plugin_opt_subscribe {rule}" for rule in subscription_rules(settings.federation)),
    ]
    return "\n".join(["", *lines, ""])


def _hand_over(settings: MosquittoSettings) -> None:
    """Give the data directory to the user, and make sure that one of this machine can enter it."""
    owner, data_dir = settings.owner(), settings.data_dir
    if owner is None:
        return  # no such user here: the file is for another machine, or an image
    os.chown(data_dir, owner.uid, owner.gid)
    if settings.uid is not None:
        return  # a container mounts the folder, not those above it
    for folder in data_dir.parents:
        status = folder.stat()
        by_owner = status.st_uid == owner.uid and status.st_mode & 0o100
        by_group = status.st_gid == owner.gid and status.st_mode & 0o010
        if owner.uid != 0 and not (by_owner or by_group or status.st_mode & 0o001):
            raise SettingsError(
                f"data_dir: started by root, Mosquitto runs as the user {settings.user}, who cannot enter "
                f"{folder}, so sessions would be lost at every restart. Choose another directory with --out, e.g. "
                "one below /var/lib, or another user with --user."
            )
