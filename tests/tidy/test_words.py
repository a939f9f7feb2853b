"""Words that the project does not use, each with what stands in its place."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy.source import ROOT, files_under, name_of, project_files

PROSE = {
    # the library's own: email.utils, importlib.util
    r"(?<!email\.)(?<!importlib\.)\b(utils?|helpers?)\b": "name the thing that it does",
    r"\bcommon\.py\b": "name the thing that it holds",
    r"(?i)(?<!context )\b(?!\w*context_?manager)\w*manager\b": "name the thing that it does",
    r"\bexactly[- ]once\b": "at most once, and in doubt where nobody can know",
    r"\blease[sd]?\b": "a machine that is lost; nothing here expires into a second run",
    r"\bwhitelist|\bblacklist": "allowed, refused",
    r"\bguarantees? delivery\b": "say what happens when it fails",
    r"\b(simply|obviously|of course|blazing(ly)?|robust|seamless(ly)?|cutting[- ]edge|powerful)\b": "a fact",
    r"\bidempotence key|\bidempotent key": "name, or Idempotency-Key",
}
EVERYWHERE = {
    r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b": "an issue, or nothing",
    r"/(home|root|Users|work)/\w+": "a path relative to the project",
    r"\bpy" r"pi\.org\b|python" r"hosted|registry\.npm|crates\.io": "a package index, unnamed",
    r"[\u2018\u2019\u201c\u201d\u2013\u2014\u2026]": "plain ASCII punctuation",
}
# Where a banned word stands because it is told apart or refused.
EXCEPTIONS = {
    ("docs/promise.md", "lease"): "told as what others do",
    ("docs/promise.md", "exactly once"): "told as what nobody can do",
    ("README.md", "lease"): "told as what others do",
    ("README.md", "exactly once"): "told as what nobody can do",
    ("CONTRIBUTING.md", "utils"): "told as what is refused",
    ("CONTRIBUTING.md", "helpers"): "told as what is refused",
    ("CONTRIBUTING.md", "managers"): "told as what is refused",
}
GENERATED = {"requirements.lock", "LICENSE"}
TEXT = {".py", ".md", ".sql", ".toml", ".txt", ".yml", ".yaml", ".cfg", ".html", ".css", ".js", ""}


def found_words(text: str, rules: dict[str, str], where: str) -> list[str]:
    """Each banned word of a text with its line and its replacement."""
    return [
        f"{where}:{number} {match.group()!r}: {instead}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, instead in rules.items()
        for match in re.finditer(pattern, line)
        if (where, match.group().lower()) not in EXCEPTIONS
    ]


def prose_files() -> list[Path]:
    """What users read: the package, the documents and what stands at the top."""
    top = [path for path in project_files() if path.parent == ROOT and path.suffix in {".md", ".toml"}]
    return [*top, *files_under("src", "docs"), *files_under("docs", suffix=".md")]


def text_files() -> list[Path]:
    """Every text file that people wrote, but for this one."""
    return [
        path
        for path in project_files()
        if path.suffix in TEXT and path.name not in GENERATED and path != Path(__file__)
    ]


def test_what_users_read_uses_the_words_of_the_house() -> None:
    found = [line for path in prose_files() for line in found_words(path.read_text(), PROSE, name_of(path))]
    assert found == []


def test_no_file_holds_what_belongs_nowhere() -> None:
    found = [
        line for path in text_files() for line in found_words(path.read_text(), EVERYWHERE, name_of(path))
    ]
    assert found == []


def test_each_banned_word_is_found() -> None:
    planted = {
        "put it into utils": PROSE,
        "class StoreManager:": PROSE,
        "this is exactly once": PROSE,
        "when the lease runs out": PROSE,
        "# TODO: later": EVERYWHERE,
        "see /home/me/project/src": EVERYWHERE,
        "from pypi.org": EVERYWHERE,
        "a quote \u2019": EVERYWHERE,
    }
    assert [text for text, rules in planted.items() if not found_words(text, rules, "planted")] == []


def test_good_words_pass() -> None:
    text = "`nonbis ops in-doubt` lists what is in doubt; the state is `in_doubt`; release notes; pleased"
    assert found_words(text, PROSE | EVERYWHERE, "planted") == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    banned = {"utils", "util", "common", "helpers", "helper", "manager", "misc", "base"}
    assert [
        name_of(path)
        for path in project_files()
        if banned & {part.split(".")[0] for part in path.parts[len(ROOT.parts) :]}
    ] == []


WRONG_SPELLING = re.compile(r"""["'`](in-doubt|inDoubt|indoubt|in doubt|not-reached|gave-up)["'`]""")


def misspelled(text: str) -> list[str]:
    """States and verdicts that a program reads, spelled otherwise than ``in_doubt``."""
    return [match.group() for match in WRONG_SPELLING.finditer(text)]


def test_the_state_is_spelled_one_way() -> None:
    """The hyphen is the command's alone, so the rooms of commands may have it."""
    found = {
        name_of(path): misspelled(path.read_text())
        for path in files_under("src")
        if "operations" not in path.parts
    }
    assert {name: words for name, words in found.items() if words} == {}


def test_another_spelling_is_found() -> None:
    assert misspelled('state = "in-doubt"') == ['"in-doubt"']
    assert misspelled('state = "in_doubt"  # in doubt') == []
