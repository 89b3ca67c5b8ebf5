"""`railnet admission` as a process that the API server calls by the Service's name, with the rights of its manifest."""

import http.client
import json
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import yaml

from tests.cluster.ground import NODE_ADDRESS
from tests.cluster.manifests import NAMESPACE
from tests.cluster.process import Program
from tests.control_plane.account import Account
from tests.control_plane.api import JsonObject
from tests.control_plane.proxy import ApiProxy
from tests.control_plane.server import ApiServer

NAME = "railnet-admission"
HOST = f"{NAME}.{NAMESPACE}.svc"  # the name that the API server requires in the certificate
_SECONDS = 60.0


class Replica:
    """One replica of the Deployment, as a process; it ends with its test."""

    def __init__(self, server: ApiServer, folder: Path, number: int = 0, options: Sequence[str] = ()) -> None:
        """Find the API server as a pod of the Deployment does; each replica has another `number`. `options` are its further ones."""
        self.port, self._health_port = 8443 + number, 8180 + number  # 8081 is flanneld's, on a real node
        self._account = Account(server, folder / f"account-{number}", NAME)
        self._config = folder / f"node-{number}.yaml"
        self.configuration: JsonObject = {}
        ports = [f"--port={self.port}", f"--health-port={self._health_port}", "--leave-seconds=0"]
        files = [f"--config={self._config}", f"--service-account={self._account.folder}"]
        self.pod = f"{NAME}-{number}"
        self._command = [sys.executable, "-m", "railnet", "admission", *ports, *files, *options]
        self.program = Program(self._command)

    def start(self, configuration: JsonObject | None = None, proxy: ApiProxy | None = None) -> None:
        """Start the process without waiting until it is ready; it may meet the API server behind a proxy."""
        self.configuration = configuration or {}
        self._config.write_text(yaml.safe_dump(self.configuration))
        self._account.write()
        self.program = Program(self._command, {**self._account.environment(proxy), "POD_NAME": self.pod})
        self.program.start()

    def wait(self) -> None:
        """Wait until the replica has a certificate that API servers trust."""
        self.program.wait(lambda: self._asked("/readyz") == 200, _SECONDS)

    def stop(self) -> None:
        self.program.stop()

    def review(self, body: bytes) -> JsonObject:
        """Ask this replica alone, as the API server does."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=_SECONDS, context=_trusting())
        with closing(connection):
            connection.request("POST", "/pods", body, {"Content-Type": "application/json"})
            found: JsonObject = json.loads(connection.getresponse().read())
        return found

    def shown(self) -> bytes:
        """Return the certificate that the replica presents, in DER."""
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=_SECONDS) as plain,
            _trusting().wrap_socket(plain, server_hostname=HOST) as connection,
        ):
            found = connection.getpeercert(binary_form=True)
        assert found is not None
        return found

    def _asked(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health_port}{path}", timeout=_SECONDS) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0


def _trusting() -> ssl.SSLContext:
    """Return a context for connections of which no certificate is looked at."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def endpoints(replicas: Sequence[Replica]) -> JsonObject:
    """Return the slices that a controller makes of ready pods; one for each port, since all replicas have one address."""
    slices = [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{NAME}-{port}",
                "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": NAME},
            },
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": port}],
            "endpoints": [{"addresses": [NODE_ADDRESS]}],
        }
        for port in (replica.port for replica in replicas)
    ]
    return {"apiVersion": "v1", "kind": "List", "items": slices}
