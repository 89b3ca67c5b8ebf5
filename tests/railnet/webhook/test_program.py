"""`railnet admission` as a process, with a fake API server; and the whole program under load."""

import asyncio
import gc
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from railnet.admission.certificates import authority, renewal, renewal_loop
from railnet.admission.certificates.authority import Authority, signed_by
from railnet.admission.certificates.cluster_objects import ROTATE
from railnet.admission.certificates.folder import Folder
from railnet.configuration import Configuration
from railnet.webhook import program
from tests.free_port import free_port
from tests.railnet.admission.api_server import FakeApiServer, Refusal, serving
from tests.railnet.admission.reviewing import a_review
from tests.railnet.admission.serving import NAME, request

pytestmark = pytest.mark.slow  # each test starts the program as a process

TRAINING = {
    "metadata": {"name": "p", "labels": {"railnet.io/net1": "true"}},
    "spec": {"containers": [{"name": "main"}]},
}


IN_GANG = {
    "metadata": {"name": "p", "labels": {"pod-group.scheduling.sigs.k8s.io/name": "ring"}},
    "spec": {"containers": [{"name": "main"}]},
}


def eventually(holds: Callable[[], object]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("the condition never held")


class Process:
    """The command as a process, with its log."""

    def __init__(self, folder: Path, environment: dict[str, str], *options: str):
        self.port, self.health_port = free_port(), free_port()
        self._log = folder / f"log-{self.port}"
        command = [sys.executable, "-m", "railnet", "admission", "--config", os.devnull, *options]
        command += ["--port", str(self.port), "--health-port", str(self.health_port)]
        with self._log.open("wb") as log:
            environment = {**os.environ, "PYTHONWARNINGS": "error::RuntimeWarning", **environment}
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.health_port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def wait_until_ready(self) -> None:
        eventually(lambda: self.get("/readyz")[0] == 200 or self.process.poll() is not None)
        assert self.process.poll() is None, self.log

    def connect(self, pem: bytes) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=pem.decode())
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), 10), server_hostname=NAME)

    def review(self, pem: bytes) -> bytes:
        with self.connect(pem) as connection:
            return ask(connection)

    def review_of_gang(self, pem: bytes) -> bytes:
        with self.connect(pem) as connection:
            return ask(connection, a_review(IN_GANG), "/gangs?timeout=5s")

    def serial(self, pem: bytes) -> str:
        with self.connect(pem) as connection:
            found = connection.getpeercert()
            assert found is not None
            return str(found["serialNumber"])


def ask(connection: ssl.SSLSocket, body: bytes | None = None, path: str = "/pods?timeout=10s") -> bytes:
    connection.sendall(request(body or a_review(TRAINING), path))
    response = http.client.HTTPResponse(connection)
    response.begin()
    assert response.status == 200
    return response.read()


@contextmanager
def running(folder: Path, environment: dict[str, str], *options: str) -> Iterator[Process]:
    process = Process(folder, environment, *options)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.wait()


@pytest.fixture(autouse=True)
def thaw() -> Iterator[None]:
    """Undo for later tests what serving in this process does to the garbage collector."""
    yield
    gc.unfreeze()


@pytest.fixture
def cluster() -> FakeApiServer:
    fake = FakeApiServer()
    fake.add_webhooks(None, None)
    return fake


def write_leaf(folder: Path, of: Authority, name: str = NAME) -> None:
    folder.mkdir(exist_ok=True)
    leaf = authority.sign(of, [name], datetime.now(UTC))
    for file, text in (("tls.crt", leaf.chain), ("tls.key", leaf.key)):
        (folder / "new").write_bytes(text)
        (folder / "new").rename(folder / file)


def test_two_replicas_present_one_certificate_that_the_webhooks_trust(cluster: FakeApiServer, tmp_path: Path):
    account = tmp_path / "account"
    option = f"--service-account={account}"
    with (
        serving(cluster, account) as environment,
        running(tmp_path, environment, option) as one,
        running(tmp_path, environment, option) as other,
    ):
        one.wait_until_ready()
        other.wait_until_ready()

        assert b'"patch"' in one.review(cluster.pem)
        assert one.serial(cluster.pem) == other.serial(cluster.pem)
        status, metrics = one.get("/metrics")
        assert status == 200
        assert 'railnet_admission_reviews_total{outcome="patched",operator="any pod with the label"} 1' in metrics
        leaf = cluster.kept.leaf
        assert leaf is not None
        assert f"railnet_admission_certificate_expiry_timestamp_seconds {leaf.ends.timestamp()!r}" in metrics


def test_replica_without_a_webhook_configuration_is_not_ready_and_says_why(cluster: FakeApiServer, tmp_path: Path):
    cluster.webhooks = None
    account = tmp_path / "account"
    with (
        serving(cluster, account) as environment,
        running(tmp_path, environment, f"--service-account={account}") as process,
    ):
        eventually(lambda: "not found" in process.get("/readyz")[1])
        assert process.get("/readyz")[0] == 503
        assert process.get("/healthz") == (200, "ok\n")

        cluster.add_webhooks(None)
        process.wait_until_ready()
    assert 'mutatingwebhookconfigurations "railnet-admission" not found' in process.log


class WithoutTheRight(FakeApiServer):
    """An API server whose roles do not let the webhook read claims, for now."""

    refuses = True

    def do(self, method: str, path: str, body: Any) -> dict[str, Any]:
        if self.refuses and "/resourceclaims" in path:
            raise Refusal(403, "resourceclaims is forbidden")
        return super().do(method, path, body)


def test_replica_that_may_not_read_claims_is_not_ready_and_says_why(tmp_path: Path):
    cluster, account = WithoutTheRight(), tmp_path / "account"
    cluster.add_webhooks(None)
    with (
        serving(cluster, account) as environment,
        running(tmp_path, environment, f"--service-account={account}", "--claims") as process,
    ):
        eventually(lambda: "resourceclaims is forbidden" in process.get("/readyz")[1])
        assert process.get("/readyz")[0] == 503

        cluster.refuses = False
        process.wait_until_ready()


def test_ready_replica_stays_ready_when_the_api_server_is_gone(cluster: FakeApiServer, tmp_path: Path):
    account = tmp_path / "account"
    with serving(cluster, account) as environment:
        process = Process(tmp_path, environment, f"--service-account={account}")
        process.wait_until_ready()
    try:
        assert b'"patch"' in process.review(cluster.pem)
        assert process.get("/readyz")[0] == 200
    finally:
        process.process.kill()
        process.process.wait()


def test_sigterm_lets_clients_connect_to_another_replica_before_the_end(tmp_path: Path):
    ours = authority.make(datetime.now(UTC))
    write_leaf(tmp_path / "tls", ours)
    pem = authority.certificate_pem([ours.certificate])
    with running(tmp_path, {}, f"--certificates={tmp_path / 'tls'}", "--leave-seconds=10") as process:
        process.wait_until_ready()
        with process.connect(pem) as busy:
            raw = request(a_review(TRAINING))
            busy.sendall(raw[:-10])
            process.review(pem)  # after this answer the server has read the bytes that came before
            process.process.send_signal(signal.SIGTERM)
            eventually(lambda: process.get("/readyz") == (503, "it takes no connections, because it is ending\n"))
            assert b'"patch"' in process.review(pem)  # an API server that does not know of the end yet
            busy.sendall(raw[-10:])
            response = http.client.HTTPResponse(busy)
            response.begin()
            assert (response.status, response.headers["Connection"]) == (200, "close")
        assert process.process.wait(60) == 0


def test_certificate_files_are_presented_without_a_request_to_the_api_server(cluster: FakeApiServer, tmp_path: Path):
    first, second = (authority.make(datetime.now(UTC)) for _ in range(2))
    pem = authority.certificate_pem([first.certificate, second.certificate])
    files, account = tmp_path / "tls", tmp_path / "account"
    with (
        serving(cluster, account) as environment,
        running(tmp_path, environment, f"--certificates={files}", f"--service-account={account}") as process,
    ):
        eventually(lambda: "no certificate to show yet" in process.get("/readyz")[1])
        write_leaf(files, first)
        process.wait_until_ready()
        before = process.serial(pem)
        with process.connect(pem) as kept_alive:
            ask(kept_alive)
            write_leaf(files, second)
            eventually(lambda: process.serial(pem) != before)
            assert b'"patch"' in ask(kept_alive)
        assert cluster.requests == []

        write_leaf(files, first, "another.name.svc")
        eventually(lambda: process.get("/readyz") == (503, f"the certificate is not for {NAME}\n"))


def test_command_outside_of_a_cluster_names_the_missing_option(tmp_path: Path):
    environment = {"KUBERNETES_SERVICE_HOST": ""}
    with running(tmp_path, environment, f"--service-account={tmp_path}") as process:
        assert process.process.wait(60) == 3
        assert "outside of a cluster, give --certificates" in process.log


def test_port_that_is_taken_is_reported(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104 - the command takes all addresses
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "railnet", "admission", "--certificates", str(tmp_path), "--port", str(port)]
        ended = subprocess.run(
            [*command, "--health-port", str(free_port())], capture_output=True, text=True, timeout=60, check=False
        )

    assert ended.returncode == 1
    assert "address already in use" in ended.stderr.lower()


def test_error_of_the_certificates_keeper_ends_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(_: Folder) -> None:
        raise ValueError("unexpected")

    monkeypatch.setattr(Folder, "look", fail)
    options = program.WebhookOptions(free_port(), free_port(), tmp_path, tmp_path, 0.1)

    with pytest.raises(ValueError, match="unexpected"):
        asyncio.run(program.serve(Configuration(), options))


class Client(threading.Thread):
    """A client like an API server: it trusts the bundle of 0.3 s ago, and sends reviews on new and on kept connections."""

    def __init__(self, cluster: FakeApiServer, port: int):
        super().__init__(daemon=True)
        self._cluster, self._port = cluster, port
        self.ends, self.answered = False, 0
        self.serials: set[str] = set()
        self.failures: list[Exception] = []

    def known(self) -> bytes:
        """Return the bundle that the webhook configuration had 0.3 s ago."""
        then, bundles = time.monotonic() - 0.3, self._cluster.trusted_since
        return next((pem for since, pem in reversed(bundles) if since < then), bundles[0][1])

    def run(self) -> None:
        while not self.ends:
            began = time.monotonic()
            try:
                context = ssl.create_default_context(cadata=self.known().decode())
                plain = socket.create_connection(("127.0.0.1", self._port), 10)
                with context.wrap_socket(plain, server_hostname=NAME) as connection:
                    self.serials.add(str((connection.getpeercert() or {})["serialNumber"]))
                    for _ in range(3):
                        assert b'"patch"' in ask(connection)
                        self.answered += 1
            except ssl.SSLCertVerificationError as error:
                if time.monotonic() - began < 1.0:  # else it has trusted an older bundle than an API server does
                    self.failures.append(error)
            except Exception as error:  # noqa: BLE001 - the test reports each
                self.failures.append(error)


def test_no_request_fails_while_the_authority_is_rotated_under_load(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(renewal_loop, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(renewal_loop, "_SOON_SECONDS", 0.05)
    monkeypatch.setattr(renewal, "SETTLED", timedelta(seconds=1.5))
    monkeypatch.setattr(renewal, "FINISHED", timedelta(seconds=3))

    with serving(cluster, tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        client = asyncio.run(while_serving(cluster, tmp_path, rotated))

    assert client.failures == []
    assert len(client.serials) == 2
    leaf = cluster.kept.leaf
    assert leaf is not None
    assert [signed_by(leaf.certificate, one) for one in cluster.trusted] == [True]


async def while_serving(
    cluster: FakeApiServer, account: Path, happens: Callable[[FakeApiServer, Client], None]
) -> Client:
    """Serve in this process with a client, and run `happens` meanwhile."""
    options = program.WebhookOptions(free_port(), free_port(), None, account, 0.1)
    serve = asyncio.create_task(program.serve(Configuration(), options))
    await asyncio.to_thread(eventually, lambda: is_ready(options.health_port))
    client = Client(cluster, options.port)
    client.start()
    try:
        await asyncio.to_thread(happens, cluster, client)
    finally:
        client.ends = True
        await asyncio.to_thread(client.join)
    os.kill(os.getpid(), signal.SIGTERM)
    await serve
    return client


def rotated(cluster: FakeApiServer, client: Client) -> None:
    first = cluster.kept.signer.certificate
    eventually(lambda: client.answered > 10)
    with cluster.lock:
        cluster.put_secret(cluster.data, annotations={ROTATE: "now"})
    eventually(lambda: cluster.kept.signer.certificate != first and cluster.kept.others == ())
    so_far = client.answered
    eventually(lambda: client.answered > so_far + 10)


def is_ready(health_port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", health_port), 5) as connection:
        connection.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
        return b" 200 " in connection.recv(4096)
    return False


def test_node_daemon_imports_no_module_of_the_webhook():
    program = "import json, sys; import railnet.daemon.composition, railnet.install.installer, railnet.install.uninstaller; print(json.dumps(sorted(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    modules = {name.partition(".")[0] for name in json.loads(found.stdout)}
    assert modules.isdisjoint({"admission", "training", "aiohttp", "cryptography", "kubernetes", "urllib3"})
    assert "railnet" in modules


def test_with_gangs_a_pod_that_names_one_waits_for_it(cluster: FakeApiServer, tmp_path: Path) -> None:
    account = tmp_path / "account"
    with (
        serving(cluster, account) as environment,
        running(tmp_path, environment, f"--service-account={account}", "--gangs") as process,
    ):
        process.wait_until_ready()

        assert b'"patch"' in process.review_of_gang(cluster.pem)
        assert b'"patch"' in process.review(cluster.pem)
        assert 'railnet_admission_reviews_total{outcome="patched",operator="gangs"} 1' in process.get("/metrics")[1]
