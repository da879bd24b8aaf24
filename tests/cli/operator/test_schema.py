"""``foltr schema``: a file is shown and checked, and signed and retained at a real broker."""

import asyncio
import json

import pytest
from cli.commands import foltr
from cli.operator.test_enrol import heard

from foltr.core.operator.credentials import read_credentials
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.signed_documents import read_schema
from foltr.core.protocol.topics import Topics

TOPIC = Topics("mail").schema
SHOP = FeatureSchema(
    name="shop",
    version=1,
    features=[
        Feature(name="bm25", scaling="log", high=40),
        Feature(name="price", scaling="min_max", low=-2.5, high=6),
        Feature(name="age", scaling="per_query"),
    ],
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(SHOP.to_json())
    return path


def test_a_schema_is_shown_with_its_columns_and_its_hash(file):
    """As a table and as JSON."""
    done = foltr("schema", "show", file, code=0)
    assert [line.split() for line in done.stdout.splitlines()[2:5]] == [
        ["0", "bm25", "log", "-", "40.000"],
        ["1", "price", "min_max", "-2.500", "6.000"],
        ["2", "age", "per_query", "-", "-"],
    ]
    assert done.stdout.splitlines()[-1].endswith(f"hash {SHOP.hash.hex()}")
    shown = json.loads(foltr("schema", "show", file, "--json").stdout)
    assert (shown["name"], shown["version"], shown["hash"]) == ("shop", 1, SHOP.hash.hex())
    assert shown["features"][0] == {"column": 0, "name": "bm25", "scaling": "log", "low": None, "high": 40.0}


def test_a_schema_is_made_of_a_sample(tmp_path):
    """Of the named columns in their order; where there is no sample yet, of names."""
    data, out = tmp_path / "sample.csv", tmp_path / "schema.json"
    data.write_text("id,bm25,price\n17,12.5,0.5\n18,3,0\n")
    features = ("--feature", "price", "--feature", "bm25")
    done = foltr("schema", "new", "shop", "--data", data, *features, "--out", out, code=0)
    assert [line.split() for line in done.stdout.splitlines()[2:4]] == [
        ["0", "price", "ratio", "-", "-"],
        ["1", "bm25", "min_max", "0.000", "13.000"],
    ]
    assert f"foltr federator run --schema {out}" in done.stdout
    assert FeatureSchema.read(out).names == ["price", "bm25"]
    out = tmp_path / "named.json"
    foltr("schema", "new", "shop", "--feature", "bm25", "--out", out, code=0)
    assert FeatureSchema.read(out).features == [Feature(name="bm25", scaling="per_query")]


def test_a_schema_is_checked_against_a_sample(tmp_path):
    """What made it fits it, its columns in any order; values outside the bounds are counted by feature."""
    data, later, out = tmp_path / "sample.csv", tmp_path / "later.csv", tmp_path / "schema.json"
    data.write_text("bm25,price\n1,2\n50,3\n2,1\n3,0\n")
    later.write_text("price,stock,bm25\n1,2,3\n500,3,9\n2,1,4\n2,1,5\n")
    foltr("schema", "new", "shop", "--data", data, "--out", out, code=0)
    assert "all values are within the bounds" in foltr("schema", "check", out, "--data", data, code=0).stdout
    assert "1 features have values outside" in foltr("schema", "check", out, "--data", later, code=0).stdout
    checked = json.loads(foltr("schema", "check", out, "--data", later, "--json", code=0).stdout)
    assert [(one["name"], one["outside"]) for one in checked["features"]] == [("bm25", 0.0), ("price", 0.25)]
    later.write_text("price\n1\n")
    assert "no column 'bm25'" in foltr("schema", "check", out, "--data", later, code=2).stderr


def test_what_no_schema_is_made_of_is_said_in_one_line(tmp_path):
    """And nothing is written, nor anything that somebody wrote before overwritten."""
    (tmp_path / "sample.csv").write_text("bm25,price\n1,2\n")
    (tmp_path / "logged.txt").write_text("1 qid:1 1:20 2:-3\n")
    for more, code, said in (
        ((), 2, "data: give a sample of the features to measure, or their names with --feature"),
        (("--data", "sample.csv", "--feature", "size"), 2, "has no column 'size'; it has bm25, price"),
        (("--data", "logged.txt", "--feature", "bm25"), 2, "1 names, but logged.txt has 2 columns"),
        (("--data", "none.csv"), 1, "none.csv: No such file"),
        (("--feature", "a", "--feature", "a"), 2, "two features are called 'a'"),
        (("--feature", "a", "--out", "sample.csv"), 2, "sample.csv exists"),
        (("--feature", "a", "--out", "nowhere/schema.json"), 2, "the folder"),
    ):
        done = foltr("schema", "new", "shop", "--out", "schema.json", *more, cwd=tmp_path)
        assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (code, True, 1), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logged.txt", "sample.csv"]
    assert (tmp_path / "sample.csv").read_text() == "bm25,price\n1,2\n"
    wrong = {"name": "shop", "version": 1, "features": [{"name": "bm25", "scaling": "log"}]}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    refused = foltr("schema", "show", "wrong.json", cwd=tmp_path, code=2).stderr
    assert ("needs 'high'" in refused, refused.count("\n")) == (True, 1)


async def test_a_device_of_a_guarded_broker_hears_the_schema(guarded_broker, tmp_path, file):
    """The access list lets the operator write it and a device read it; again it stays, and other features do not."""
    operator = ("--operator", guarded_broker.operator_dir)
    foltr("device", "enrol", "device-1", *operator, cwd=tmp_path, code=0)
    device = read_credentials(tmp_path / "device-1.json", "device")
    for _ in range(2):
        done = await asyncio.to_thread(foltr, "schema", "publish", file, *operator, cwd=tmp_path, code=0)
        assert SHOP.hash.hex() in done.stdout
        message = await heard(device.broker, [TOPIC], "device-1")
        assert message.retained
        assert read_schema(message.payload, device.enrolment_public_key, "mail").content == SHOP
    file.write_text(SHOP.model_copy(update={"features": SHOP.features[:2]}).to_json())
    done = await asyncio.to_thread(foltr, "schema", "publish", file, *operator, cwd=tmp_path, code=2)
    assert "needs a higher version" in done.stderr
