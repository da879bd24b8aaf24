"""Connections between processes of one user: what crosses them, who is refused, and how they end."""

import os
import select
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.waiting import PATIENCE_S

from foltr.core.learning.gate import Gate, ShownCount, Source
from foltr.edge_client.workers.local_socket import LocalListener, connect, socket_beside


@pytest.fixture
def place(tmp_path):
    return socket_beside(tmp_path / "clicks.sqlite")


def echo(listener):
    """Answer each connection with what it says, one after the other, until the listener is closed."""

    def answer():
        while (connection := listener.accept()) is not None:
            try:
                while True:
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
    listener.close()
    thread.join(PATIENCE_S)
    assert not Path(place).exists()
    assert not thread.is_alive()


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
    closed(LocalListener(place))


def test_a_store_without_a_file_or_with_a_long_path_has_no_socket(tmp_path):
    """The system takes 107 bytes."""
    assert socket_beside(":memory:") is None
    assert socket_beside(tmp_path / ("a" * 107)) is None


def test_a_listener_that_is_closed_twice_leaves_the_next_one_its_path(tmp_path):
    """An owner closes it first and last; the next owner listens there in between."""
    path = str(tmp_path / "store.socket")
    first = LocalListener(path)
    closed(first)
    following = LocalListener(path)
    first.close()
    connect(path).close()
    closed(following)


def test_a_listener_holds_no_file_that_is_opened_after_its_end(place, monkeypatch):
    """Its thread may be about to poll when it is closed. Then a pipe that gets the number would never end."""
    about_to_poll, go_on = threading.Event(), threading.Event()

    class HeldPoll:
        def __init__(self):
            self._poll = select.poll()
            self.register = self._poll.register

        def poll(self, *limit):
            about_to_poll.set()
            assert go_on.wait(PATIENCE_S)
            return self._poll.poll(*limit)

    monkeypatch.setattr("foltr.edge_client.workers.local_socket.select", SimpleNamespace(poll=HeldPoll, POLLIN=1))
    listener = LocalListener(place)
    thread = echo(listener)
    assert about_to_poll.wait(PATIENCE_S)
    listener.close()
    pipes = [os.pipe() for _ in range(20)]  # one has the number, if the close has freed it
    go_on.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    for pipe in pipes:
        for descriptor in pipe:
            os.close(descriptor)


def closed(listener):
    listener.close()
    assert listener.accept() is None
