"""The admission webhook as a separate process, started as its container starts it, with a certificate of an authority of its own.

It needs no cluster: its certificate is in a folder, as cert-manager would keep it.
"""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from railnet.admission.certificates import authority
from railnet.kernel.waiting import block_until
from simnode.kubernetes.review_client import NAME

# The defaults of `railnet admission`; the node's namespace has no other program on them.
_PORT, _HEALTH_PORT = 8443, 8080
_FOLDER = Path("/run/simnode")
_DESCRIPTORS = 1024  # the smallest usual limit, into which all limits of `railnet.admission.server.connections` fit
_START_SECONDS, _END_SECONDS = 90.0, 60.0
_READY = "ready"
# include/net/tcp_states.h: what the kernel keeps without the webhook, TCP_SYN_RECV and TCP_TIME_WAIT; and TCP_LISTEN.
_OF_KERNEL = ("03", "06", "0A")


class WebhookFailed(RuntimeError):
    """The webhook ended or did not become ready; the message has the end of the webhook's log."""


class Held(NamedTuple):
    """The resources of a webhook: `connections` are the sockets of both ports, `peak_mib` is the most memory since its start."""

    connections: int
    descriptors: int
    threads: int
    peak_mib: float


class Webhook:
    """A webhook that is ready.

    Attributes:
        port: the port of HTTPS, on all addresses of the node.
        authority: the certificate of the authority that its clients must trust, in PEM.
        process: the webhook.
    """

    def __init__(self, process: subprocess.Popen[bytes], authority_pem: bytes, log: Path) -> None:
        self.port, self.authority, self.process = _PORT, authority_pem, process
        self._log = log

    def held(self) -> Held:
        """Return what it holds at this moment.

        Raises:
            OSError: the process has ended.
        """
        folder = Path("/proc", str(self.process.pid))
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return Held(
            sum(_connections(folder / "net" / table) for table in ("tcp", "tcp6")),
            len(list((folder / "fd").iterdir())),
            int(status["Threads"]),
            int(status["VmHWM"].split()[0]) / 1024,
        )

    def log(self) -> str:
        """Return its log."""
        return self._log.read_text(errors="replace")

    def failure(self, what: str) -> WebhookFailed:
        """Return an error that names what failed, with the webhook's status and the end of its log."""
        return WebhookFailed(
            f"{what}; the webhook's status is {self.process.poll()}; /readyz: {_readiness()}; its log ends:\n{self.log()[-2000:]}\n"
            f"the node's network:\n{_network()}"
        )


@contextmanager
def running() -> Iterator[Webhook]:
    """Run a webhook until the end of the block, on a simulated node; it leaves nothing.

    Raises:
        WebhookFailed: it did not become ready, or it did not end with status 0 when it got SIGTERM at the end of the block.
    """
    with tempfile.TemporaryDirectory(prefix="webhook-", dir=_FOLDER) as name:
        folder = Path(name)
        made = authority.make(datetime.now(UTC))
        leaf = authority.sign(made, [NAME], datetime.now(UTC))
        (folder / "tls.crt").write_bytes(leaf.chain)
        (folder / "tls.key").write_bytes(leaf.key)
        with (folder / "log").open("wb") as log, _started(folder, log.fileno()) as process:
            webhook = Webhook(process, authority.certificate_pem([made.certificate]), folder / "log")
            try:
                if not block_until(lambda: process.poll() is not None or _is_ready(), _START_SECONDS, 0.05):
                    raise webhook.failure(f"the webhook is not ready after {_START_SECONDS:g} s")
                yield webhook
                process.send_signal(signal.SIGTERM)
                if not block_until(lambda: process.poll() is not None, _END_SECONDS, 0.05):
                    raise webhook.failure(f"the webhook does not end within {_END_SECONDS:g} s")
                if process.returncode != 0:
                    raise webhook.failure("the webhook failed")
            finally:
                process.kill()


def _started(folder: Path, log: int) -> subprocess.Popen[bytes]:
    options = {
        "config": Path(os.devnull),  # an absent file is refused
        "certificates": folder,
        "port": _PORT,
        "health-port": _HEALTH_PORT,
        "leave-seconds": 0,
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    process = subprocess.Popen(
        [sys.executable, "-m", "railnet", "admission", *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
    return process


def _is_ready() -> bool:
    return _readiness() == _READY


def _readiness() -> str:
    """Return what the webhook answers at /readyz, or why it does not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{_HEALTH_PORT}/readyz", timeout=5) as answer:
            return _READY if answer.status == HTTPStatus.OK else str(answer.status)
    except urllib.error.HTTPError as error:
        return error.read().decode(errors="replace")
    except OSError as error:
        return str(error)


def _network() -> str:
    """Return what tells why a connection to the webhook fails: links, addresses, listening sockets, and the kernel's counts of drops."""
    commands = ("ip -brief link", "ip -4 -brief address", "ip rule", "ss -Hltn", "nstat -a")
    outputs = (subprocess.run(one.split(), capture_output=True, text=True, check=False).stdout for one in commands)
    return "\n".join(line for output in outputs for line in output.splitlines() if "Octets" not in line)


def _connections(table: Path) -> int:
    """Count the webhook's connections in a table of the kernel (proc(5), /proc/net/tcp): the second field is the own address."""
    rows = (line.split() for line in table.read_text().splitlines()[1:])
    return sum(int(row[1].rpartition(":")[2], 16) in (_PORT, _HEALTH_PORT) and row[3] not in _OF_KERNEL for row in rows)
