"""Connections between processes of one user: what crosses them, who is refused, and how they end."""

import stat
import threading
from pathlib import Path

import numpy as np
import pytest
from support.waiting import PATIENCE_S

from foltr.core.learning.gate import Gate, ShownCount, Source
from foltr.edge_client.workers.local_socket import LocalListener, connect, socket_beside


@pytest.fixture
def place(tmp_path):
    return socket_beside(tmp_path / "clicks.sqlite")


def echo(listener):
    """Answer one connection with what it says, until it is closed."""

    def answer():
        connection = listener.accept()
        try:
            while connection is not None:
                connection.send(connection.receive())
        except OSError:
            connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_what_is_sent_arrives(place):
    """Also what is larger than the system's buffers, and what Python does not pickle by itself."""
    listener = LocalListener(place)
    thread = echo(listener)
    connection = connect(place)
    features, gate = np.random.default_rng(1).random((1000, 136)), Gate(counts={Source.BASE: ShownCount(3, 2, 1.5)})
    connection.send(features)
    assert np.array_equal(connection.receive(PATIENCE_S), features)
    connection.send(gate)
    assert connection.receive(PATIENCE_S) == gate
    connection.close()
    thread.join(PATIENCE_S)
    listener.close()
    assert not Path(place).exists()


def test_only_its_user_may_connect(place, monkeypatch):
    """By the mode of the file, and by what the system says of the other process, which is not believed otherwise."""
    listener = LocalListener(place)
    assert stat.S_IMODE(Path(place).stat().st_mode) == 0o600
    thread = echo(listener)
    monkeypatch.setattr("foltr.edge_client.workers.local_socket.os.geteuid", lambda: 12345)
    with pytest.raises(PermissionError):
        connect(place)
    listener.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_the_socket_of_a_killed_process_is_replaced(place):
    """It stays in the folder, and nobody listens."""
    with pytest.raises(FileNotFoundError):
        connect(place)
    Path(place).touch()
    with pytest.raises(ConnectionRefusedError):
        connect(place)
    LocalListener(place).close()


def test_a_store_without_a_file_or_with_a_long_path_has_no_socket(tmp_path):
    """The system takes 107 bytes."""
    assert socket_beside(":memory:") is None
    assert socket_beside(tmp_path / ("a" * 107)) is None


def test_a_listener_that_is_closed_twice_leaves_the_next_one_its_path(tmp_path):
    """An owner closes it first and last; the next owner listens there in between."""
    path = str(tmp_path / "store.socket")
    first = LocalListener(path)
    first.close()
    following = LocalListener(path)
    first.close()
    connect(path).close()
    following.close()
