"""The command ``nonbis pay``.

The name is shown before the first byte leaves, so that a person can go on under it after a crash.
Data goes to stdout alone, everything else to stderr.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from nonbis.client.intent import new_name
from nonbis.client.verdict import Meaning, Payment, Refused, Try, Verdict, VerdictState
from nonbis.core.names import check_name
from nonbis.core.payments import AMOUNT_MAX
from nonbis.core.refusals import NameMalformed, Refusal

if TYPE_CHECKING:
    from nonbis.client.client import Client, Progress

EXIT_DONE = 0
EXIT_NOT_DONE = 1

_HEADLINES: dict[str, tuple[str, str]] = {
    "applied": ("green", "applied: the money moved, once"),
    "failed": ("red", "failed: no money moved"),
    "in_doubt": ("yellow", "in doubt: the service can't say whether the money moved"),
    "not_reached": ("red", "not reached: no byte left this machine, no money moved by this call"),
    "gave_up": ("yellow", "gave up: it is not known whether the money moved"),
    "refused": ("red", "refused: this call moved no money"),
}
_ADVICE: dict[str, str] = {
    "failed": "To try again, give the same name: --name {name}\nThat is a new attempt within 24 hours of the"
    " first call and up to 20 attempts in all, unless the service is set otherwise; from then on it repeats"
    " its last answer.",
    "over": "The service takes no new attempt under this name any more (24 hours after the first call or 20"
    " attempts, unless it is set otherwise): it repeats this answer. A new payment needs a new name.",
    "in_doubt": "Don't pay in another way. Ask again later under the same name: --name {name}",
    "not_reached": "Is the service running, and is --url right? Go on under the same name: --name {name}",
    "gave_up": "Don't pay in another way. Go on under the same name: --name {name}",
}
_RETRY_SECONDS = 86_400
_ATTEMPTS_MAX = 20
"""What a service does that is not set otherwise; it alone decides."""
_MEANINGS: dict[Meaning, str] = {
    Meaning.APPLIED: "applied",
    Meaning.FAILED: "the payment failed",
    Meaning.DOUBT: "the service is in doubt",
    Meaning.RUNNING: "still in progress",
    Meaning.NOT_DONE: "not done this time",
    Meaning.REFUSED: "refused",
    Meaning.NOT_SENT: "not reached",
    Meaning.UNKNOWN: "no clear answer",
}


@click.command("pay")
@click.option("--to", "destination", required=True, metavar="D", help="Whom to pay.")
@click.option(
    "--amount",
    required=True,
    type=click.IntRange(1, AMOUNT_MAX),
    metavar="N",
    help="In the currency's minor unit: 1250 is 12.50 USD.",
)
@click.option("--currency", metavar="C", help="ISO 4217, such as EUR. Default: the service's.")
@click.option(
    "--name",
    metavar="K",
    help="The payment's name: one per payment, the same again when you retry. Default: a new random UUID.",
)
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, metavar="U", help="The service.")
@click.option("--retry-failed", is_flag=True, help="Make another attempt when the rail declines.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def pay(
    *,
    destination: str,
    amount: int,
    currency: str | None,
    name: str | None,
    url: str,
    retry_failed: bool,
    as_json: bool,
) -> None:
    """Pay once: up to six tries under one name, then an honest verdict.

    Exit code 0: applied. 1: failed, in doubt, not reached, gave up, or refused. 2: wrong usage.
    """
    known_name = _checked_name(name)
    with _make_client(url) as client:
        try:
            end: Verdict | Refused = client.pay(
                destination=destination,
                amount=amount,
                currency=currency,
                name=known_name,
                retry_failed=retry_failed,
            )
        except Refusal as refusal:
            raise click.UsageError(refusal.detail) from None
        except Refused as refused:
            end = refused
        except KeyboardInterrupt:
            click.echo(f"stopped. {_ADVICE['gave_up'].format(name=known_name)}", err=True)
            sys.exit(EXIT_NOT_DONE)
    if as_json:
        click.echo(msgspec.json.encode(as_object(end)).decode())
    else:
        _show(end)
    applied = isinstance(end, Verdict) and end.state is VerdictState.APPLIED
    sys.exit(EXIT_DONE if applied else EXIT_NOT_DONE)


def _checked_name(name: str | None) -> str:
    try:
        return new_name() if name is None else check_name(name)
    except NameMalformed as error:
        raise click.BadParameter(error.detail, param_hint="--name") from None


def _make_client(url: str) -> Client:
    try:
        from nonbis.client.client import Client  # noqa: PLC0415 - only this command needs the extra
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"nonbis pay needs the extra 'client' (missing: {error.name}): pip install 'nonbis[client]'"
        ) from None
    try:
        return Client(url, watch=_progress)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None


def _progress(progress: Progress) -> None:
    """Told before each try; the name is shown before the first byte leaves, and not for a wrong usage."""
    if progress.last is None:
        click.echo(f"name {progress.name}", err=True)
    last = f"{_told(progress.last)}; " if progress.last else ""
    wait = f", waiting {progress.wait_seconds:.1f} s" if progress.wait_seconds else ""
    click.echo(f"{last}try {progress.number} of {progress.tries_max}{wait}", err=True)


def _told(one: Try) -> str:
    details = [str(one.status or ""), one.code, one.error]
    told = " ".join(part for part in details if part)
    return printable(f"{_MEANINGS[one.meaning]} ({told})" if told else _MEANINGS[one.meaning])


def as_object(end: Verdict | Refused) -> dict[str, Any]:
    """What ``--json`` prints: the members of Verdict; ``state`` is "refused" where Refused was raised.

    A member of a problem, a payment or a try that is not known is None, never "".
    """
    verdict = end if isinstance(end, Verdict) else None
    return {
        "state": verdict.state.value if verdict else "refused",
        "name": end.name,
        "operation_id": verdict.operation_id if verdict else None,
        "payment": _members(verdict.payment) if verdict else None,
        "problem": _members(end.problem),
        "tries": [_members(one) for one in end.tries],
    }


def _members(told: msgspec.Struct | None) -> dict[str, Any] | None:
    if told is None:
        return None
    members = msgspec.structs.asdict(told)
    return {name: None if value == "" and name != "description" else value for name, value in members.items()}


def _show(end: Verdict | Refused) -> None:
    from rich.console import Console  # noqa: PLC0415 - not needed for --json
    from rich.text import Text  # noqa: PLC0415 - not needed for --json

    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    console = Console(color_system=colours, soft_wrap=True, highlight=False)
    state = end.state.value if isinstance(end, Verdict) else "refused"
    colour, headline = _HEADLINES[state]
    console.print(Text(headline, style=f"bold {colour}"))
    for label, value in _facts(end):
        console.print(Text(f"  {label:<10}{printable(value)}"))
    if advice := _advice(end, state):
        console.print(Text(advice))


def _facts(end: Verdict | Refused) -> list[tuple[str, str]]:
    facts = [("name", end.name)]
    if isinstance(end, Verdict):
        if end.operation_id:
            facts.append(("operation", end.operation_id))
        if end.payment:
            paid = f"{end.payment.amount} {end.payment.currency} to {end.payment.destination}"
            facts.append(("payment", paid))
            facts.append(("attempt", str(end.payment.attempt)))
            if end.payment.reason:
                facts.append(("reason", end.payment.reason))
    answered = not (isinstance(end, Verdict) and end.state is VerdictState.APPLIED)
    if end.problem and answered:
        parts = (str(end.problem.status), end.problem.code, end.problem.detail or end.problem.title)
        facts.append(("answer", " ".join(part for part in parts if part)))
    facts.append(("tries", str(len(end.tries))))
    return facts


def _advice(end: Verdict | Refused, state: str) -> str:
    if end.problem and end.problem.code == "cancelled":
        return "The name was cancelled: nothing will ever be paid under it."
    if end.problem and end.problem.code == "name-reused":
        return "The name belongs to another payment. A new payment needs a new name."
    over = state == "failed" and isinstance(end, Verdict) and _is_over(end.payment, time.time())
    advice = _ADVICE.get("over" if over else state, "").format(name=end.name)
    if state == "failed" and isinstance(end, Verdict) and end.unanswered:
        advice += (
            "\nA try without an answer may still arrive: look the name up before you pay in another way."
        )
    return advice


def _is_over(payment: Payment | None, wall_seconds: float) -> bool:
    """Whether a service that is not set otherwise makes no new attempt of this failed payment."""
    if payment is None:
        return False
    try:
        created = datetime.datetime.fromisoformat(payment.created_at).timestamp()
    except (ValueError, OverflowError):
        created = wall_seconds
    return payment.attempt >= _ATTEMPTS_MAX or wall_seconds - created >= _RETRY_SECONDS


def printable(text: str) -> str:
    """The text without control characters: an answer must not steer the terminal."""
    return "".join(character if character.isprintable() else "�" for character in text)
