"""``foltr config``: a file that explains every setting, a check before anything starts, and what holds."""

import json
import re
import tomllib

from cli.commands import foltr

from foltr.cli.settings import GROUP_OF, GROUPS, VARIABLES


def test_the_written_file_explains_every_setting_and_sets_none(tmp_path):
    """Each with its variable; what is a default there is the default once the # is gone."""
    assert "foltr config check" in foltr("config", "init", cwd=tmp_path, code=0).stdout
    text = (tmp_path / "foltr.toml").read_text()
    assert [variable for variable in VARIABLES if f"{variable})" not in text] == []
    assert {name: {} for name in GROUPS} == tomllib.loads(text)
    assert foltr("config", "check", cwd=tmp_path).stdout == "foltr.toml: nothing is wrong; 0 settings are set\n"
    uncommented = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    (tmp_path / "foltr.toml").write_text(uncommented)
    n_set = sum(len(table) for table in tomllib.loads(uncommented).values())
    assert n_set > len(GROUP_OF) / 2
    done = foltr("config", "check", cwd=tmp_path)
    assert done.stdout == f"foltr.toml: nothing is wrong; {n_set} settings are set\n", done.stderr


def test_a_file_that_is_there_is_kept_unless_it_is_to_be_replaced(tmp_path):
    """It may have a password."""
    (tmp_path / "foltr.toml").write_text("[rounds]\n")
    assert "add --force" in foltr("config", "init", cwd=tmp_path, code=2).stderr
    assert (tmp_path / "foltr.toml").read_text() == "[rounds]\n"
    foltr("config", "init", "--force", cwd=tmp_path, code=0)
    foltr("config", "init", "other.toml", cwd=tmp_path, code=0)
    assert (tmp_path / "other.toml").read_text() == (tmp_path / "foltr.toml").read_text()


def test_what_a_federator_would_refuse_the_check_refuses(tmp_path):
    """In the same words, with exit code 2."""
    for text, said in (
        ("[rounds]\nmin_client = 3", "did you mean min_clients?"),
        ("[rounds]\nmin_clients = 9\nmax_clients = 3", "max_clients: 3 is below min_clients (9)"),
        ('[operations]\nbroker_url = "http://x"', "mqtt://"),
        ('[learning]\nfeature_schema = "none.json"', "schema: none.json: No such file"),
    ):
        (tmp_path / "foltr.toml").write_text(text)
        assert said in foltr("config", "check", cwd=tmp_path, code=2).stderr, text


def test_what_holds_is_shown_with_where_it_comes_from(tmp_path):
    """A password is not shown: people paste this."""
    url = "postgresql://foltr:s3cr:t@db/foltr"
    (tmp_path / "foltr.toml").write_text(f'[rounds]\nmin_clients = 3\nmax_clients = 4\n[operations]\ndb_url = "{url}"')
    words = ("config", "show", "--min-time", "2", "--json")
    done = foltr(*words, cwd=tmp_path, FOLTR_MAX_CLIENTS="5", FOLTR_METHOD_PARAMETERS="learning_rate=0.2", code=0)
    rows = {row["key"]: row for row in json.loads(done.stdout)}
    assert rows.keys() == GROUP_OF.keys()
    assert {key: (row["value"], row["source"]) for key, row in rows.items() if row["source"] != "default"} == {
        "min_clients": (3, "file"),
        "max_clients": (5, "environment"),
        "min_time_s": (2.0, "flag"),
        "db_url": ("postgresql://foltr:***@db/foltr", "file"),
        "method_parameters": ({"learning_rate": "0.2"}, "environment"),
    }
    assert "s3cr" not in foltr("config", "show", cwd=tmp_path).stdout
    assert (rows["max_time_s"]["value"], rows["max_time_s"]["group"]) == (600.0, "rounds")
