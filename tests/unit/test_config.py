from __future__ import annotations

from pathlib import Path

import pytest
import rich.pretty
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import Config, load_config, redact
from holdfast.errors import ConfigError


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _file(text: str) -> Path:
    path = Path("holdfast.toml")
    path.write_text(text, encoding="utf-8")
    return path


def test_without_any_setting_the_store_is_a_file_in_the_home_folder(tmp_path: Path) -> None:
    config = load_config(environ={})
    assert config.home == tmp_path / ".holdfast"
    assert config.store == f"sqlite:///{tmp_path}/.holdfast/holdfast.db"
    assert (config.environment, config.host, config.port) == ("development", "127.0.0.1", 8000)


def test_a_home_with_odd_characters_still_gives_a_whole_url() -> None:
    config = load_config({"home": "/data/my home?#"}, environ={})
    assert config.store == "sqlite:////data/my%20home%3F%23/holdfast.db"


def test_arguments_win_over_the_environment_which_wins_over_the_file() -> None:
    _file('host = "file"\nport = 1\nenvironment = "file"')
    environ = {"HOLDFAST_HOST": "environment", "HOLDFAST_PORT": "2"}
    config = load_config({"port": 3, "host": None}, environ=environ)
    assert (config.environment, config.host, config.port) == ("file", "environment", 3)


def test_our_own_port_variable_wins_over_the_platforms() -> None:
    assert load_config(environ={"PORT": "5000"}).port == 5000
    assert load_config(environ={"PORT": "5000", "HOLDFAST_PORT": "6000"}).port == 6000


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load_config(environ={"HOLDFAST_STORE": "", "PORT": ""}).port == 8000


@pytest.mark.parametrize(
    ("environment", "prefix"),
    [
        ("production", "prod"),
        ("staging", "staging"),
        ("ci", "ci"),
        ("development", "dev"),
        ("Production", "dev"),
        ("anna", "dev"),
    ],
)
def test_the_environment_chooses_the_collection_prefix(environment: str, prefix: str) -> None:
    assert load_config(environ={"HOLDFAST_ENV": environment}).prefix == prefix


@pytest.mark.parametrize(
    ("environ", "text", "words"),
    [
        ({"PORT": "http"}, "", "PORT: port must be a whole number from 0 to 65535, not 'http'"),
        ({"HOLDFAST_PORT": "65536"}, "", "HOLDFAST_PORT: port must be a whole number"),
        ({}, "port = true", "holdfast.toml: port must be a whole number"),
        ({}, "port = -1", "holdfast.toml: port must be a whole number"),
        ({}, "host = 7", "holdfast.toml: host must be text"),
        ({}, 'hots = "a"', "holdfast.toml: unknown setting 'hots'; did you mean host?"),
        ({}, 'colour = "a"', "holdfast.toml: unknown setting 'colour'; known are allow, audit_url,"),
        ({}, "port = ", "holdfast.toml is not valid TOML"),
        ({}, "services = 1", "holdfast.toml: services is a list of names of services"),
        ({"HOLDFAST_STORE": "hunter2"}, "", "HOLDFAST_STORE: store must be a URL such as sqlite:///"),
    ],
)
def test_a_bad_setting_is_told_with_its_source_and_what_to_do(
    environ: dict[str, str], text: str, words: str
) -> None:
    _file(text)
    with pytest.raises(ConfigError) as caught:
        load_config(environ=environ)
    assert words in caught.value.message
    assert "hunter2" not in caught.value.message


def test_an_unknown_argument_is_told() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'prot'"):
        load_config({"prot": 1}, environ={})


def test_a_named_file_must_be_there() -> None:
    with pytest.raises(ConfigError, match=r"other.toml can't be read: No such file"):
        load_config(environ={}, file=Path("other.toml"))


def test_a_file_that_is_not_text_is_told() -> None:
    Path("holdfast.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        load_config(environ={})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://anna:pa:ss@w@db:5432/x", "postgresql://anna:***@db:5432/x"),
        ("postgresql://anna@db/x?sslpassword=s&a=1", "postgresql://anna@db/x?sslpassword=***&a=1"),
        ("firestore://p?emulator=h:1&api_key=k", "firestore://p?emulator=h:1&api_key=***"),
        ("sqlite:////data/holdfast.db", "sqlite:////data/holdfast.db"),
    ],
)
def test_secrets_in_a_url_are_masked_and_the_rest_is_kept(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    ("environ", "text", "services"),
    [
        ({}, "", None),
        ({}, 'services = ["renewals", "gwi"]', ("renewals", "gwi")),
        ({}, "services = []", ()),
        ({"HOLDFAST_SERVICES": "gwi, calendar-sync"}, 'services = ["renewals"]', ("gwi", "calendar-sync")),
    ],
)
def test_the_services_that_run_are_a_list_in_the_file_or_the_environment(
    environ: dict[str, str], text: str, services: tuple[str, ...] | None
) -> None:
    _file(text)
    assert load_config(environ=environ).services == services


@pytest.mark.parametrize("table", ["service", "services"])
def test_settings_of_a_service_are_read_under_their_name_and_under_the_former(table: str) -> None:
    _file(f"[{table}.renewals]\nsource = 'here'")
    config = load_config(environ={})
    assert (config.service_settings, config.services) == ({"renewals": {"source": "here"}}, None)


@pytest.mark.parametrize("text", ['services = ["gwi"]\n[services.gwi]', "[services.gwi]\n[service.gwi]"])
def test_settings_under_both_names_or_beside_the_list_are_refused_with_the_place(text: str) -> None:
    _file(text)
    with pytest.raises(ConfigError, match=r"under \[service\.NAME\]"):
        load_config(environ={})


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_no_way_of_printing_a_config_shows_the_password(password: str) -> None:
    config = Config(home=Path("/h"), store=f"postgresql://anna:hunter2{password}hunter2@db/x")
    printed = [repr(config), str(config), str(config.redacted()), rich.pretty.pretty_repr(config)]
    assert not any("hunter2" in text for text in printed)
    assert all("postgresql://anna:***@db/x" in text for text in printed)


@pytest.mark.parametrize("variable", ["HOLDFAST_HOME", "HOLDFAST_STORE", "HOLDFAST_PUBLIC_URL"])
def test_a_variable_that_is_not_utf_8_is_named(variable: str) -> None:
    # So the interpreter gives bytes that are no text.
    with pytest.raises(ConfigError, match=f"{variable}: .* UTF-8"):
        load_config(environ={variable: "sqlite:////data/\udcff.db"})


@pytest.mark.parametrize(
    ("variable", "value"),
    [("HOLDFAST_STORE", "postgresql://app:hunter2@[db/x"), ("HOLDFAST_PUBLIC_URL", "https://[hooks")],
)
def test_an_address_that_can_not_be_read_is_named_and_not_shown(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable}: .* URL") as told:
        load_config(environ={variable: value})
    assert "hunter2" not in told.value.message
