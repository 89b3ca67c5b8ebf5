"""The real etcd, API server, controller manager and scheduler; users are known by token, certificates are the API server's own."""

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.ground import NODE_ADDRESS, NODES, POD_SUBNET, RUN, SERVICES
from tests.cluster.kubectl import Kubectl
from tests.cluster.process import Program

ADMIN, KUBE_PROXY = RUN / "admin.kubeconfig", RUN / "kube-proxy.kubeconfig"
_CERTIFICATES = RUN / "certificates"
CERTIFICATE, _KEY = _CERTIFICATES / "apiserver.crt", _CERTIFICATES / "apiserver.key"
_TOKENS = RUN / "tokens.csv"


def kubelet_kubeconfig(node: str) -> Path:
    """Return the path of the kubeconfig of a node's kubelet."""
    return RUN / f"{node}.kubeconfig"


# By kubeconfig: user, group. The cluster role system:node-proxier is bound to the user system:kube-proxy.
_USERS = {
    ADMIN: ("admin", "system:masters"),
    KUBE_PROXY: ("system:kube-proxy", "system:authenticated"),
    **{kubelet_kubeconfig(node): (f"system:node:{node}", "system:nodes") for node in NODES},
}
_ETCD = "http://127.0.0.1:2379"
_START_SECONDS = 300.0


class ControlPlane:
    """Four programs, used by `kubectl`. `start` returns at once; `wait` returns when they can be used."""

    def __init__(self, flags: Mapping[str, Sequence[str]] | None = None) -> None:
        """Describe them; `flags` are further ones by program, which count beyond those that all tests have."""
        self.kubectl = Kubectl(ADMIN)
        self.etcd, self.apiserver, self.controllers, self.scheduler = (
            Program([*command, *(flags or {}).get(str(command[0]), ())])
            for command in (_etcd(), _apiserver(), _controller_manager(), _scheduler())
        )

    def start(self) -> None:
        """Start what the others need."""
        _write_users()
        self.etcd.start()
        self.apiserver.start()

    def wait(self) -> None:
        """Wait until the API server is ready, start the others, and wait until every namespace has what pods need."""
        self.apiserver.wait(lambda: self.kubectl.answers("get", "--raw=/readyz"), _START_SECONDS)
        self.controllers.start()
        self.scheduler.start()
        self.controllers.wait(lambda: self.kubectl.answers("get", "serviceaccount/default"), _START_SECONDS)

    def stop(self) -> None:
        for program in (self.scheduler, self.controllers, self.apiserver, self.etcd):
            program.stop()


def _write_users() -> None:
    RUN.mkdir(exist_ok=True)
    # Other users of the machine can reach the API server of the demo, so they must not guess a token.
    tokens = {path: secrets.token_hex() for path in _USERS}
    lines = [f'{tokens[path]},{user},{user},"{group}"' for path, (user, group) in _USERS.items()]
    _TOKENS.write_text("\n".join(lines) + "\n")
    for path, token in tokens.items():
        path.write_text(json.dumps(_kubeconfig(token)))


def _kubeconfig(token: str) -> dict[str, object]:
    cluster = {"server": f"https://{NODE_ADDRESS}", "certificate-authority": str(CERTIFICATE)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    }


def _etcd() -> list[str | Path]:
    return [
        "etcd",
        f"--data-dir={RUN}/etcd",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
    ]


def _apiserver() -> list[str | Path]:
    return [
        "kube-apiserver",
        f"--etcd-servers={_ETCD}",
        "--secure-port=443",
        f"--advertise-address={NODE_ADDRESS}",
        f"--cert-dir={_CERTIFICATES}",
        f"--token-auth-file={_TOKENS}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-key-file={_KEY}",
        f"--service-account-signing-key-file={_KEY}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICES}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged",
        "--enable-aggregator-routing",  # webhooks are called at their pods' addresses, as by an API server without kube-proxy
    ]


def _controller_manager() -> list[str | Path]:
    return [
        "kube-controller-manager",
        f"--kubeconfig={ADMIN}",
        f"--service-account-private-key-file={_KEY}",
        f"--root-ca-file={CERTIFICATE}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--allocate-node-cidrs",
        f"--cluster-cidr={POD_SUBNET}",  # each node gets a /24 of it, which flanneld takes for its lease
    ]


def _scheduler() -> list[str | Path]:
    return ["kube-scheduler", f"--kubeconfig={ADMIN}", "--leader-elect=false", "--bind-address=127.0.0.1"]
