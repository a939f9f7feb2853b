"""The documents tell the truth: their commands run, print what they say, and their links lead somewhere."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from nonbis.core.policy import SettingsUnsafe
from nonbis.faces.settings import load_settings
from tests.tidy.documents import Stage, steps_of
from tests.tidy.source import ROOT, files_under, name_of

DOCUMENTS = [ROOT / "README.md", *files_under("docs", suffix=".md")]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
RUN = [path for path in DOCUMENTS if steps_of(path.read_text())]


def play(text: str, folder: Path) -> None:
    """Run every command of a document."""
    with Stage(folder) as stage:
        for step in steps_of(text):
            stage.run(step)


@pytest.mark.parametrize("path", RUN, ids=name_of)
def test_the_commands_do_what_the_document_says(path: Path, tmp_path: Path) -> None:
    play(path.read_text(), tmp_path)
    assert steps_of(path.read_text())


def test_the_quick_start_is_among_them() -> None:
    commands = [step.command for step in steps_of((ROOT / "README.md").read_text())]
    assert commands[0] == "make serve"
    assert any("NONBIS_FAILPOINT=sent:kill" in command for command in commands)


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ("```console\n$ echo one\ntwo\n```\n", "the document says:\ntwo"),
        ("```console\n$ echo one\n$ false\n```\n", "line 3: false: exit 1"),
        ("```sh\ntrue\nfalse\n```\n", "line 3: false: exit 1"),
        ("```sh\nfalse &\n```\n", "line 2: false &: exit 1"),
    ],
)
def test_a_document_that_lies_is_found(planted: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as caught:
        play(planted, tmp_path)
    assert told in str(caught.value)


def test_documents_are_run_in_a_terminal_as_it_is_opened(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        assert stage._environment()["COLUMNS"] == "80"
        (step,) = steps_of("```console\n$ echo $COLUMNS\n80\n```\n")
        stage.run(step)


def test_a_session_is_read_line_by_line(tmp_path: Path) -> None:
    session = "$ printf '%s\\n' \\\n    a b\na\n...\n$ echo 127.0.0.1:8000 # a remark\n127.0.0.1:8000\n"
    text = f"x\n```console\n{session}```\n"
    first, second = steps_of(text)
    assert (first.line, second.line) == (3, 7)
    assert second.command == "echo 127.0.0.1:8000"
    play(text, tmp_path)


def test_a_server_is_awaited_and_stopped(tmp_path: Path) -> None:
    text = "```sh\npython3 -m http.server --bind 127.0.0.1 $PORT &\n```\n"
    with Stage(tmp_path) as stage:
        (step,) = steps_of(text.replace("$PORT", str(stage.ports[8000])))
        stage.run(step)
        server = stage.servers[8000]
        assert server.poll() is None
    assert server.returncode in {0, -signal.SIGINT, 128 + signal.SIGINT, 1}


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings make."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead_links(path: Path, text: str) -> list[str]:
    """Links to files of the project, or places in them, that are not there."""
    found = []
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        page = (path.parent / name) if name else path
        if not page.exists() or (anchor and anchor not in anchors(page.read_text())):
            found.append(target)
    return found


@pytest.mark.parametrize("path", sorted({*DOCUMENTS, *TOP}), ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    assert dead_links(path, path.read_text()) == []


def test_a_dead_link_is_found() -> None:
    readme = ROOT / "README.md"
    text = "[a](docs/promise.md) [b](docs/gone.md) [c](docs/promise.md#gone) [d](https://example.org/)"
    assert dead_links(readme, text) == ["docs/gone.md", "docs/promise.md#gone"]


def unlinked(index: str, names: set[str]) -> set[str]:
    """Pages that an index leads nobody to."""
    return names - {target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", index)}


def test_the_index_leads_to_every_page() -> None:
    pages = {path.name for path in files_under("docs", suffix=".md")} - {"index.md"}
    assert unlinked((ROOT / "docs" / "index.md").read_text(), pages) == set()


def test_a_page_to_which_nothing_leads_is_found() -> None:
    assert unlinked("[a](a.md#there) b.md", {"a.md", "b.md"}) == {"b.md"}


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for path in {*DOCUMENTS, *TOP}
        for target in re.findall(r"(?:^|[`$]\s?)make ([a-z]+)", path.read_text(), re.MULTILINE)
    }
    assert {"serve", "test"} <= named
    assert named - targets == set()


def folders_differ(told: str, there: set[str]) -> set[str]:
    """Folders of tests that a document names and that are not there, or the other way round."""
    return set(re.findall(r"`tests/(\w+)`", told)) ^ there


def test_every_layer_of_tests_is_told() -> None:
    there = {path.relative_to(ROOT).parts[1] for path in files_under("tests")}
    assert folders_differ((ROOT / "docs" / "testing.md").read_text(), there) == set()


def test_an_untold_layer_is_found() -> None:
    assert folders_differ("`tests/core` and `tests/gone`", {"core", "new"}) == {"gone", "new"}


def toml_blocks() -> list[str]:
    """The settings files that the documents show."""
    texts = (path.read_text() for path in DOCUMENTS)
    return [
        block
        for text in texts
        for block in re.findall(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]


@pytest.mark.parametrize("block", toml_blocks())
def test_settings_that_are_shown_are_taken(block: str, tmp_path: Path) -> None:
    file = tmp_path / "nonbis.toml"
    file.write_text(block)
    assert load_settings(file) != load_settings(None)
    file.write_text(block.replace("attempts_max", "attempts_mx"))
    with pytest.raises(SettingsUnsafe, match="attempts_mx"):
        load_settings(file)
