"""What the client's document says in Python and in its tables is true. (Its commands are run elsewhere.)"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from nonbis.client import AsyncClient, Client, VerdictState
from nonbis.client.client import TIMEOUT
from tests.client.quick import QuickAsyncPause, QuickPause
from tests.client.scripted import DECLINED, IN_DOUBT, UNAUTHORISED, Scripted, payment, say

TEXT = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
PAID = say(201, payment(destination="DE-4711"))
DECLINED_THERE = say(201, payment("failed", destination="DE-4711", reason="declined"))


@pytest.fixture
def _quick(monkeypatch):
    for kind, pause in ((Client, QuickPause()), (AsyncClient, QuickAsyncPause())):
        real = kind.__init__
        monkeypatch.setattr(
            kind, "__init__", lambda self, *a, real=real, pause=pause, **k: real(self, *a, pause=pause, **k)
        )


def run(block, script):
    printed = io.StringIO()
    with Scripted(script) as server, contextlib.redirect_stdout(printed):
        exec(block.replace("http://127.0.0.1:8000", server.url), {"__name__": "example"})
    return printed.getvalue().strip()


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    ("number", "script", "printed"),
    [
        (0, [PAID], "paid: 7:42"),
        (0, [DECLINED_THERE], "not paid: failed order-2003"),
        (0, [DECLINED], "not known yet, go on under order-2003"),  # somebody else's payment
        (0, [IN_DOUBT], "not known yet, go on under order-2003"),
        (0, [UNAUTHORISED], "mend the request: unauthorised"),
        (1, [PAID], "applied"),
    ],
)
def test_the_python_examples_run(number, script, printed):
    assert len(BLOCKS) == 2
    assert run(BLOCKS[number], script) == printed


def test_every_verdict_is_explained():
    table = TEXT.split("## What the verdicts mean")[1].split("\n## ")[0]
    explained = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert explained == {state.value for state in VerdictState}


def test_the_times_that_are_told():
    seconds = (TIMEOUT.read, TIMEOUT.connect, TIMEOUT.write)
    assert "Reading waits {:.0f} s, connecting {:.0f} s, writing {:.0f} s".format(*seconds) in TEXT
