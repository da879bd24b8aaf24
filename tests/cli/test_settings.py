"""Settings: which layer wins, which file is read, and that a mistake in any of them is one clear line at start."""

import itertools

import pytest

from foltr.cli.config import toml_text
from foltr.cli.fields import default_of
from foltr.cli.method import choose_rule
from foltr.cli.settings import GROUP_OF, GROUPS, VARIABLES, Source, load_settings, load_with_sources
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


def test_a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default(folder, monkeypatch):
    """In every combination; the settings have where the value is from."""
    numbers = dict(zip(LAYERS, (11, 12, 13), strict=True))
    for said in (said for n in range(4) for said in itertools.combinations(LAYERS, n)):
        written = f"[rounds]\nmax_clients = {numbers[Source.FILE]}\n" if Source.FILE in said else ""
        (folder / "foltr.toml").write_text(written)
        with monkeypatch.context() as environment:
            if Source.ENVIRONMENT in said:
                environment.setenv("FOLTR_MAX_CLIENTS", str(numbers[Source.ENVIRONMENT]))
            loaded = load_with_sources(max_clients=numbers[Source.FLAG] if Source.FLAG in said else None)
        winner = said[-1] if said else Source.DEFAULT
        assert loaded.settings.rounds.max_clients == numbers.get(winner, 100), said
        assert loaded.sources.get("max_clients", Source.DEFAULT) is winner, said


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


def test_every_setting_is_set_by_the_file_and_by_its_variable(folder, monkeypatch):
    """Under the same name, and its default is a value that both take."""
    for number, key in enumerate(GROUP_OF):
        default = default_of(GROUPS[GROUP_OF[key]], key)
        if default is None:
            continue
        (folder / "foltr.toml").write_text(f"[{GROUP_OF[key]}]\n{key} = {toml_text(default)}\n")
        assert load_with_sources().sources == {key: Source.FILE}
        with monkeypatch.context() as environment:
            environment.setenv(f"FOLTR_{key.upper()}", str(default))
            assert load_with_sources().sources == {key: Source.ENVIRONMENT}
            assert list(load_with_sources().values())[number][2] == default


def test_a_mistake_in_the_file_is_named_with_what_to_do(folder):
    """All that is wrong, in one line."""
    for text, said in (
        ("[rounds]\nmin_client = 3", "min_client: unknown setting; did you mean min_clients?"),
        ("[round]\nmin_clients = 3", "round: unknown setting; did you mean rounds?"),
        ("[rounds]\nn_features = 3", "n_features: it belongs in the table [learning], not [rounds]"),
        ("min_clients = 3", "min_clients: it belongs in the table [rounds] (in foltr.toml)"),
        ("rounds = 3", "rounds: it is a table; write [rounds]"),
        ("[rounds]\na = 1\nmax_client = 3", "a: unknown setting; known are aggregation, "),
        ("[rounds]\na = 1\nmax_client = 3", "max_client: unknown setting; did you mean max_clients?"),
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


def test_several_sums_are_compared_unless_another_rule_is_asked_for():
    """A round has several so that one hostile device does not spoil them all; a mean of them would undo that."""
    for chosen, n_sums, rule in (
        ({}, 1, "mean"),
        ({}, 20, "median"),
        ({"aggregation": "mean"}, 20, "mean"),
        ({"aggregation": "trimmed-mean"}, 20, "trimmed-mean"),
    ):
        assert choose_rule(load_settings(**chosen).defence, n_sums).text == rule, chosen
