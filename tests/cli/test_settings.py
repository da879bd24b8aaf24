"""Settings: which layer wins, which file is read, and that a mistake in any of them is one clear line at start."""

import itertools

import pytest
from cli.commands import foltr

from foltr.cli.commands import load_command
from foltr.cli.config import toml_text
from foltr.cli.fields import default_of
from foltr.cli.settings import GROUP_OF, GROUPS, VARIABLES, Settings, Source, load_settings, load_with_sources
from foltr.core.errors import SettingsError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory without a settings file, and an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("FOLTR_CONFIG", raising=False)
    return tmp_path


LAYERS = (Source.FILE, Source.ENVIRONMENT, Source.FLAG)


@pytest.mark.parametrize("said", [said for n in range(4) for said in itertools.combinations(LAYERS, n)])
def test_a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default(said, folder, monkeypatch):
    """In every combination; the settings say where the value is from."""
    numbers = dict(zip(LAYERS, (11, 12, 13), strict=True))
    if Source.FILE in said:
        (folder / "foltr.toml").write_text(f"[rounds]\nmax_clients = {numbers[Source.FILE]}\n")
    if Source.ENVIRONMENT in said:
        monkeypatch.setenv("FOLTR_MAX_CLIENTS", str(numbers[Source.ENVIRONMENT]))
    loaded = load_with_sources(max_clients=numbers[Source.FLAG] if Source.FLAG in said else None)
    winner = said[-1] if said else Source.DEFAULT
    assert loaded.settings.rounds.max_clients == numbers.get(winner, 100)
    assert loaded.sources.get("max_clients", Source.DEFAULT) is winner


def test_the_file_is_the_flags_then_the_variables_then_that_of_the_working_directory(folder, monkeypatch):
    """One file is read, not several of them."""
    for name in ("foltr", "named", "flagged"):
        (folder / f"{name}.toml").write_text(f'[operations]\nfederation = "{name}"\n')
    assert load_settings().federation == "foltr"
    monkeypatch.setenv("FOLTR_CONFIG", "named.toml")
    assert load_settings().federation == "named"
    assert load_settings(config="flagged.toml").federation == "flagged"
    with pytest.raises(SettingsError, match=r"^config: none.toml: No such file.*foltr config init"):
        load_settings(config="none.toml")


@pytest.mark.parametrize("key", GROUP_OF)
def test_every_setting_is_set_by_the_file_and_by_its_variable(key, folder, monkeypatch):
    """Under the same name, and its default is a value that both take."""
    default = default_of(GROUPS[GROUP_OF[key]], key)
    if default is not None:
        (folder / "foltr.toml").write_text(f"[{GROUP_OF[key]}]\n{key} = {toml_text(default)}\n")
        assert load_with_sources().sources == {key: Source.FILE}
        monkeypatch.setenv(f"FOLTR_{key.upper()}", str(default))
        assert load_with_sources().sources == {key: Source.ENVIRONMENT}
        assert list(load_with_sources().values())[[*GROUP_OF].index(key)][2] == default


def test_a_mistake_in_the_file_is_named_with_what_to_do(folder):
    """All that is wrong, in one line."""
    for text, said in (
        ("[rounds]\nmin_client = 3", "min_client: there is no such setting; did you mean min_clients?"),
        ("[round]\nmin_clients = 3", "round: there is no such setting; did you mean rounds?"),
        ("[rounds]\nn_features = 3", "n_features: it belongs into the table [learning], not [rounds]"),
        ("min_clients = 3", "min_clients: it belongs into the table [rounds] (in foltr.toml)"),
        ("rounds = 3", "rounds: it is a table; write [rounds]"),
        ("[rounds]\na = 1\nmax_client = 3", "a: there is no such setting; known are aggregation, "),
        ("[rounds]\na = 1\nmax_client = 3", "max_client: there is no such setting; did you mean max_clients?"),
        ("[rounds]\nmin_clients = 0", "min_clients: Input should be greater than or equal to 1, not 0 (in foltr.toml)"),
        ("[rounds]\nmin_time_s = nan", "min_time_s: Input should be a finite number, not nan (in foltr.toml)"),
        ("[defence]\naggregation_parameters = 3", "aggregation_parameters: Input should be a valid dictionary, not 3"),
        ("[privacy]\nprivacy = 'secur'", "privacy: Input should be 'trusted' or 'secure', not 'secur'"),
        ("[rounds", "config: foltr.toml is not TOML: "),
    ):
        (folder / "foltr.toml").write_text(text)
        with pytest.raises(SettingsError) as caught:
            load_settings()
        assert said in str(caught.value), text
        assert "\n" not in str(caught.value), text


def test_what_a_number_may_be_is_said_here(folder):
    """What is passed down relies on it, and checks only how settings fit each other."""
    for group, key, values in (
        ("rounds", "max_time_s", (0, 30 * 86_400 + 1)),
        ("rounds", "min_time_s", (-0.1, 30 * 86_400 + 1)),
        ("rounds", "over_selection", (-0.1, 100.1)),
        ("rounds", "staleness_limit", (-1,)),
        ("rounds", "updates_per_round", (0,)),
        ("rounds", "shortest_period_s", (0.5,)),
        ("rounds", "longest_period_s", (30 * 86_400 + 1,)),
        ("rounds", "stop_after_round", (0,)),
        ("rounds", "history_rounds", (0,)),
        ("learning", "n_features", (0, 4_000_001)),
        ("unlearning", "unlearning_interval", (0,)),
        ("unlearning", "unlearn_every_s", (-1, 30 * 86_400 + 1)),
        ("unlearning", "unlearn_after", (0,)),
    ):
        for value in values:
            (folder / "foltr.toml").write_text(f"[{group}]\n{key} = {value}")
            with pytest.raises(SettingsError, match=f"^{key}: Input should be "):
                load_settings()


def test_a_mistake_says_where_it_was_made(monkeypatch):
    """The variable, or the flag; with the default that holds without it."""
    monkeypatch.setenv("FOLTR_MIN_CLIENTS", "many")
    with pytest.raises(SettingsError, match=r"^min_clients: .*, not 'many' \(FOLTR_MIN_CLIENTS\); the default is 2$"):
        load_settings()
    with pytest.raises(SettingsError, match=r"\(--rounds\); it need not be set$"):
        load_settings(stop_after_round=0, min_clients=1)


def test_what_was_set_is_told_from_what_has_its_default():
    """Several commands do something else for a value that somebody chose."""
    settings = load_settings(federation="mail", max_clients=7)
    assert settings.model_fields_set - set(GROUPS) == {"federation"}
    assert settings.rounds.model_fields_set == {"max_clients"}
    with pytest.raises(ValueError, match="frozen"):
        settings.rounds.max_clients = 8


def test_there_are_no_more_flags_and_fields_than_one_can_look_over():
    """20 of a command, and 20 of a group; no two groups have the same key, nor a key the name of a field in another."""
    run = load_command("federator").commands["run"]
    assert len([one for one in run.params if one.name != "help"]) <= 20
    assert max(len(group.model_fields) for group in GROUPS.values()) <= 20
    assert len(GROUP_OF) == sum(len(group.model_fields) for group in GROUPS.values())
    assert set(Settings.model_fields) - set(GROUPS["operations"].model_fields) == set(GROUPS) - {"operations"}


def test_the_file_is_read_by_the_federator(folder):
    """Before anything is opened; its name may be given."""
    (folder / "mine.toml").write_text("[rounds]\nmin_clients = 9\nmax_clients = 2\n")
    done = foltr("federator", "run", "--allow-unsigned", "--config", "mine.toml", cwd=folder)
    assert (done.returncode, "max_clients: 2 is below min_clients (9)" in done.stderr) == (2, True)
