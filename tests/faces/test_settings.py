"""Settings that are refused, each with a sentence that names the member; and how the command ends."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nonbis.core.policy import SettingsUnsafe
from nonbis.faces.settings import ServiceSettings, is_loopback, load_settings
from nonbis.operations.cli import main
from tests.acceptance.processes import run_nonbis

BAD_FILES = {
    "port = 70000": "port",
    'port = "8000"': "port",
    "workers = 0": "workers",
    'currency = "ABC"': "currency",
    "simulate_failures = 1.5": "simulate_failures",
    'host = "0.0.0.0"': "loopback",
    'host = "::"': "loopback",
    'host = "example.com"': "loopback",
    'sotre = "memory:"': "sotre",
    'store = "memory:"\nworkers = 2': "memory",
    "[policy]\nbeat_second = 1": "beat_second",
    "[policy]\nbeat_seconds = 0": "beat_seconds",
    "[policy]\nbeat_seconds = -1": "beat_seconds",
    "[policy]\nlost_after_seconds = 1": "lost_after_seconds",
    '[policy]\nwait_seconds = "long"': "wait_seconds",
    "[policy]\nresends_max = 61": "resends_max",
    "[policy]\nsend_deadline_seconds = 0": "send_deadline_seconds",
    "[policy]\nattempts_max = 0": "attempts_max",
    "policy = 5": "policy",
    "port = ": "config.toml",
    "port 8000": "config.toml",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_bad_file_names_the_member(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(SettingsUnsafe, match=BAD_FILES[text]) as refused:
        load_settings(path)
    assert "$" not in str(refused.value)
    assert "`" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[policy]\nbeat_second = 1", "policy: there is no setting beat_second"),
        ('[policy]\nwait_seconds = "long"', "policy.wait_seconds: Expected float, got str"),
        ("[policy]\nbeat_seconds = 0", "policy: beat_seconds must be more than 0, not 0.0"),
        ('port = "8000"', "port: Expected int, got str"),
        ('sotre = "memory:"', "there is no setting sotre"),
    ],
)
def test_the_member_is_named_in_words(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(SettingsUnsafe) as refused:
        load_settings(path)
    assert str(refused.value) == f"{path}: {words}"


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(SettingsUnsafe, match=r"none\.toml"):
        load_settings(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsUnsafe, match=r"bytes\.toml"):
        load_settings(tmp_path / "bytes.toml")


def test_the_command_line_stands_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('port = 1\ncurrency = "EUR"\n[policy]\nbeat_seconds = 1\n')
    settings = load_settings(path, port=2, store=None)
    assert (settings.port, settings.currency, settings.store) == (2, "EUR", "sqlite:///nonbis.db")
    assert settings.policy.beat_seconds == 1.0
    assert load_settings(None) == ServiceSettings()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)
    assert ServiceSettings(host=host).host == host


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "192.168.1.5", "10.0.0.1", "example.com", "", "localhost.example.com", "127.0.0.1."],
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(SettingsUnsafe, match="loopback"):
        ServiceSettings(host=host)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host=0.0.0.0"], "without API keys the service listens on loopback only"),
        (["--host=192.168.1.5", "--workers=2"], "without API keys the service listens on loopback only"),
        (["--workers=2", "--store=memory:"], "several workers can't share a store in memory"),
        (["--config=none.toml"], "none.toml"),
        (["--simulate-failures=2"], "--simulate-failures"),
        (["--port=-1"], "--port"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, options: list[str], sentence: str) -> None:
    done = serve_here(tmp_path, *options)
    assert done.exit_code == 2, done.stderr
    assert sentence in done.stderr
    check_plain(done.stderr, done.stdout)
    assert list(tmp_path.iterdir()) == []


def serve_here(folder: Path, *options: str, failpoint: str = "") -> Result:
    """``nonbis serve`` in this process and folder, which is refused before it listens."""
    with contextlib.chdir(folder):
        return CliRunner(env={"NONBIS_FAILPOINT": failpoint or None}).invoke(main, ["serve", *options])


def check_plain(errors: str, output: str) -> None:
    """A sentence on stderr, no trace, and nothing on stdout."""
    assert "Traceback" not in errors
    assert output == ""


@pytest.mark.parametrize(
    "failpoint", ["claimed", "claimed:", "claimed:explode", "nowhere:kill", ":kill", "kill"]
)
def test_a_bad_failpoint_is_refused(tmp_path: Path, failpoint: str) -> None:
    done = serve_here(tmp_path, "--port=0", failpoint=failpoint)
    assert done.exit_code == 2
    assert "NONBIS_FAILPOINT" in done.stderr
    check_plain(done.stderr, done.stdout)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_port_that_is_taken(tmp_path: Path, workers: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_nonbis("serve", f"--port={port}", f"--workers={workers}", folder=tmp_path)
    assert done.returncode == 1
    assert f"can't listen on 127.0.0.1:{port}" in done.stderr
    check_plain(done.stderr, done.stdout)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--store=postgresql://me:secret@localhost/x", "this version has no store for postgresql: yet"),
        ("--store=postgres://localhost/x", "this version has no store for postgres: yet"),
        ("--store=mysql://me:secret@localhost/x", "sqlite:///"),
        ("--rail=ledger:", "this version has no rail ledger: yet"),
        ("--store=sqlite://host/x.db", "sqlite:///"),
        ("--store=nonsense", "sqlite:///"),
        ("--rail=ftp://bank", "rail URL"),
        ("--rail=http://bank?finds=yes", "finds"),
        ("--rail=http://user:secret@bank", "user name or password"),
    ],
)
def test_a_bad_url(tmp_path: Path, option: str, sentence: str) -> None:
    done = serve_here(tmp_path, "--port=0", option)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert "secret" not in done.stderr
    check_plain(done.stderr, done.stdout)
    name = option.removeprefix("--").partition("=")
    (tmp_path / "config.toml").write_text(f"{name[0]} = '{name[2]}'")
    from_file = serve_here(tmp_path, "--port=0", "--config=config.toml")
    assert from_file.exit_code == 2
    assert sentence in from_file.stderr


@pytest.mark.parametrize("name", ["store", "rail"])
def test_the_environment_stands_between_command_line_and_file(tmp_path: Path, name: str) -> None:
    """Each place gives a URL that is refused, so that the refusal tells which one was taken."""
    (tmp_path / "config.toml").write_text(f"{name} = 'file:x'")

    def refused(*options: str, **environment: str) -> str:
        with contextlib.chdir(tmp_path):
            done = CliRunner(env=environment).invoke(main, ["serve", "--port=0", *options])
        assert done.exit_code == 2
        return done.stderr

    def url(place: str) -> str:
        return f"{place}:x"

    variable = {f"NONBIS_{name.upper()}": url("environment")}
    assert "'file" in refused("--config=config.toml")
    assert "'environment" in refused(**variable)
    assert "'environment" in refused("--config=config.toml", **variable)
    assert "'option" in refused("--config=config.toml", f"--{name}={url('option')}", **variable)


def test_the_sentence_and_the_code_come_out_of_a_real_process(tmp_path: Path) -> None:
    done = run_nonbis("serve", "--host=0.0.0.0", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "without API keys the service listens on loopback only" in done.stderr
