"""``nonbis serve``: the payment service as a command."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import click
import msgspec

from nonbis import failpoints
from nonbis.errors import NonbisError
from nonbis.faces.settings import ServiceSettings, load_settings
from nonbis.opening import DEFAULT_RAIL, DEFAULT_STORE

_log = logging.getLogger("nonbis.service")
WORKER_VARIABLE = "NONBIS_WORKER"
"""The settings of one of several workers, from its parent."""
GC_THRESHOLDS = (50_000, 20, 50)
"""A payment makes few cycles; the default of 700 would have the collector run every other payment."""


@click.command("serve")
@click.option(
    "--store",
    metavar="URL",
    envvar="NONBIS_STORE",
    show_envvar=True,
    help=f"Where operations are kept. Default: {DEFAULT_STORE}",
)
@click.option(
    "--rail",
    metavar="URL",
    envvar="NONBIS_RAIL",
    show_envvar=True,
    help=f"What makes the transfers. Default: {DEFAULT_RAIL}",
)
@click.option("--host", metavar="H", help="Loopback address to listen on. Default: 127.0.0.1")
@click.option("--port", type=click.IntRange(0, 65535), metavar="P", help="Port; 0: a free one. Default: 8000")
@click.option("--workers", type=click.IntRange(1, 64), metavar="N", help="Processes. Default: 1")
@click.option(
    "--config", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Settings in TOML."
)
@click.option(
    "--simulate-failures",
    type=click.FloatRange(0, 1),
    metavar="P",
    help="Answer 500 with probability P at each of three points of a payment.",
)
@click.option("--raise-config", is_flag=True, default=None, help="Make these settings the store's agreement.")
def serve(config: Path | None, **given: Any) -> None:
    """Run the payment service.

    The command line stands over the environment, and that over the file of --config.
    """
    _log_to_stderr()
    try:
        settings = load_settings(config, **given)
        failpoint = failpoints.from_environment()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        listening = _reserve(settings.host, settings.port)
        if settings.workers > 1:
            sys.exit(_supervise(settings, listening))
        _run(settings, failpoint, listening)
    except (NonbisError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _reserve(host: str, port: int) -> int:
    """The port to listen on, shown to be free. The server's own socket would share a taken one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise OSError(f"can't listen on {host}:{port}: {error.strerror or error}") from error
        taken: int = probe.getsockname()[1]
        return taken


def _run(settings: ServiceSettings, failpoint: failpoints.Failpoint, port: int) -> None:
    """Serve on uvloop: a payment is some ten turns of the loop, and they are cheaper there."""
    import uvloop  # noqa: PLC0415  (--help must not load the server)

    uvloop.run(_serve(settings, failpoint, port))


def _settle_memory() -> None:
    """What is loaded by now stays for ever: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


async def _serve(settings: ServiceSettings, failpoint: failpoints.Failpoint, port: int) -> None:
    """One process: open everything, listen, and stop gracefully on SIGTERM and SIGINT."""
    from granian.constants import Interfaces  # noqa: PLC0415  (--help must not load the server)
    from granian.server.embed import Server  # noqa: PLC0415  (only what is asked for is loaded)

    from nonbis.faces.service import Application, PaymentService  # noqa: PLC0415  (only what is asked for is loaded)

    service = await PaymentService.open(settings, failpoint)
    server = Server(
        Application(service),
        address=settings.host,
        port=port,
        interface=Interfaces.ASGINL,
        log_enabled=False,
        websockets=False,
        backlog=1024,
        backpressure=4096,
    )
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    _settle_memory()
    running = loop.create_task(server.serve())
    await asyncio.sleep(0)  # its first step binds the port
    click.echo(f"nonbis serves http://{settings.host}:{port} on {service.engine.store.url}")
    sys.stdout.flush()
    waiting = loop.create_task(stopping.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    _log.info("stopping: no new payments; those under way have %g s to finish", settings.policy.stop_seconds)
    await service.drain()
    server.stop()  # type: ignore[no-untyped-call]  # the server has no annotation here
    await running
    await service.close()
    _log.info("stopped")


def _supervise(settings: ServiceSettings, port: int) -> int:
    """Keep ``workers`` processes on one port; one that is killed is replaced, without its failpoint.

    One that ends by itself could not start: its settings or its store were refused, and so would be
    those of all others.
    """
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    environment = {**os.environ}
    said, say = os.pipe()
    threading.Thread(target=_tell_when_all_serve, args=(said, settings.workers), daemon=True).start()
    children = [_spawn(settings, port, environment, say) for _ in range(settings.workers)]
    environment.pop(failpoints.VARIABLE, None)
    code = 0
    while signal.sigwait(signals) == signal.SIGCHLD:
        ended = [child for child in children if child.poll() is not None]
        code = max((child.returncode for child in ended), default=0)
        if code > 0:
            break
        for child in ended:
            children[children.index(child)] = _spawn(settings, port, environment, say)
    for child in children:
        child.terminate()
    for child in children:
        child.wait()
    return max(code, 0)


def _tell_when_all_serve(said: int, workers: int) -> None:
    """Pass on what the last of the workers says when it serves, and nothing of those that come later."""
    with os.fdopen(said) as lines:
        for count, line in enumerate(lines, 1):
            if count == workers:
                click.echo(f"{line.rstrip()} with {workers} workers")
                sys.stdout.flush()


def _spawn(
    settings: ServiceSettings, port: int, environment: dict[str, str], say: int
) -> subprocess.Popen[bytes]:
    own = msgspec.structs.replace(settings, workers=1, port=port)
    return subprocess.Popen(
        [sys.executable, "-c", "from nonbis.faces.command import work; work()"],
        env={**environment, WORKER_VARIABLE: msgspec.json.encode(own).decode()},
        stdout=say,
    )


def work() -> None:
    """One of several workers: its settings come from the parent, which has checked the port."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
    _log_to_stderr()
    settings = msgspec.json.decode(os.environ.pop(WORKER_VARIABLE), type=ServiceSettings)
    try:
        _run(settings, failpoints.from_environment(), settings.port)
    except (NonbisError, ValueError, OSError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    for chatty in ("httpx2", "httpcore2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
