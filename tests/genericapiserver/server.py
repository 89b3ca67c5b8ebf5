"""etcd and the generic API server, alone: no kubelet, no controllers. Run by scripts/apiserver."""

import base64
import http.client
import json
import signal
import subprocess
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.cluster.process import Program
from tests.genericapiserver.api import Api, JsonObject

PORT = 6443
_ETCD = "http://127.0.0.1:2379"
_SECONDS = 60.0
_MOST_PUTS = 100  # etcd takes 128 operations in one transaction
_REPOSITORY = Path(__file__).resolve().parents[2]


class ApiServer:
    """The two processes, with a client (`api`) and `kubectl` for the tests."""

    def __init__(self, folder: Path) -> None:
        """Keep all files in one folder."""
        certificate = folder / "apiserver.crt"
        self.api = Api(PORT, certificate)
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(_kubeconfig(certificate)))
        self._etcd = Program(_etcd(folder))
        self._apiserver = Program(["apiserver", f"--etcd={_ETCD}", f"--certificates={folder}", f"--port={PORT}"])

    def start(self) -> None:
        self._etcd.start()
        self._apiserver.start()
        self._apiserver.wait(self._is_ready, _SECONDS)

    def stop(self) -> None:
        self.api.close()
        self._apiserver.stop()
        self._etcd.stop()

    def restart(self) -> None:
        """Kill the API server, which cuts all connections, and start it again with the objects and without their old versions."""
        self.api.close()
        self._apiserver.stop(
            signal.SIGKILL
        )  # by SIGTERM it would wait for the watches, until the leader's Lease runs out
        revision = self._etcd_answer("maintenance/status", {})["header"]["revision"]
        self._etcd_answer("kv/compaction", {"revision": revision, "physical": True})
        self._apiserver.start()
        self._apiserver.wait(self._is_ready, _SECONDS)

    def put_all(self, resource: str, objects: Sequence[JsonObject]) -> None:
        """Store objects of a resource of the core group in etcd: at once, complete as they are, and without admission; watches report it."""
        for first in range(0, len(objects), _MOST_PUTS):
            puts = [_put(resource, one) for one in objects[first : first + _MOST_PUTS]]
            self._etcd_answer("kv/txn", {"success": puts})

    def delete_all(self, resource: str) -> None:
        """Delete all objects of a resource of the core group, at once and without admission; watches report it."""
        first = f"/registry/{resource}/".encode()
        last = first[:-1] + bytes([first[-1] + 1])  # the first key that does not begin so
        self._etcd_answer("kv/deleterange", {"key": _base64(first), "range_end": _base64(last)})

    def log(self) -> str:
        return self._apiserver.log()

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl at the root of the repository; it may fail."""
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(
            command, cwd=_REPOSITORY, input=stdin, capture_output=True, text=True, check=False, timeout=_SECONDS
        )

    @staticmethod
    def _etcd_answer(path: str, body: JsonObject) -> JsonObject:
        """Ask etcd by HTTP (etcd.io/docs, "gRPC gateway")."""
        with closing(http.client.HTTPConnection(_ETCD.removeprefix("http://"), timeout=_SECONDS)) as connection:
            connection.request("POST", f"/v3/{path}", json.dumps(body))
            found: JsonObject = json.load(connection.getresponse())
            return found

    def _is_ready(self) -> bool:
        try:
            return self.api.text("/readyz") == "ok"
        except OSError:
            return False


def _put(resource: str, found: JsonObject) -> JsonObject:
    """Return the part of a transaction that stores an object as the API server does."""
    metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z", **found["metadata"]}
    name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    stored = {"apiVersion": "v1", "kind": {"pods": "Pod", "nodes": "Node"}[resource], **found, "metadata": metadata}
    put = {"key": _base64(f"/registry/{resource}/{name}".encode()), "value": _base64(json.dumps(stored).encode())}
    return {"request_put": put}


def _base64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def _etcd(folder: Path) -> list[str | Path]:
    return [
        "etcd",
        f"--data-dir={folder}/etcd",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
    ]


def _kubeconfig(certificate: Path) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "cluster",
                "cluster": {"server": f"https://127.0.0.1:{PORT}", "certificate-authority": str(certificate)},
            }
        ],
        "users": [{"name": "user", "user": {"token": "admin"}}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    }
