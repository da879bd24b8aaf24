"""A leader and two workers at a broker that knows its users: each has a session of its own, and may do what it must."""

import pytest
from cli.commands import foltr, foltr_process, start, stop
from databases import migrated_sqlite
from own_servers import provisioned


@pytest.mark.slow
@pytest.mark.parametrize("access", ["passwords", "mtls"])
def test_workers_serve_devices_as_users_of_their_own(tmp_path, access):
    """What `foltr broker worker` writes gets in; devices have all their receipts, and nobody throws the leader out."""
    server = provisioned(tmp_path, access)
    server.start()
    operator, database = str(server.operator_dir), ("--db", migrated_sqlite(tmp_path / "f.sqlite"))
    for command in (("enrol", "dev", "--count", "2", "--out-dir", "devices"), *[("broker", "worker", n) for n in "12"]):
        done = foltr(*command, "--operator", operator, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    leader = (
        "--role",
        "leader",
        "--credentials",
        f"{operator}/federator.json",
        "--min-clients",
        "2",
        "--max-clients",
        "2",
    )
    parts = [(*leader, "--min-time", "0"), *[("--role", "ingest", "--credentials", f"worker-{n}.json") for n in "12"]]
    processes = [start("federator", "run", *part, *database, cwd=tmp_path) for part in parts]
    try:
        devices = ("--credentials", "devices", "--id", "dev", "--count", "2", "--data", "synthetic", "--rounds", "3")
        done = foltr_process("client", "run", *devices, cwd=tmp_path, timeout_s=90)
    finally:
        said = [stop(process) for process in processes]
        server.stop()
    assert done.returncode == 0, (done.stderr, said)
    assert "receipts: accepted 6" in done.stdout
    assert [code for code, _ in said] == [0, 0, 0]
    assert not any("taken_over" in output for _, output in said)
