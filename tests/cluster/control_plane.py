"""etcd, API server, controller manager and scheduler, as real ones; users are known by token, certificates are the API server's own."""

import json
from pathlib import Path

from tests.cluster.ground import NODE_ADDRESS, POD_SUBNET, RUN, SERVICES
from tests.cluster.kubectl import Kubectl
from tests.cluster.process import Program

NODE = "node-a"
ADMIN, KUBELET, KUBE_PROXY = (RUN / f"{name}.kubeconfig" for name in ("admin", "kubelet", "kube-proxy"))
_CERTIFICATES = RUN / "certificates"
_CERTIFICATE, _KEY = _CERTIFICATES / "apiserver.crt", _CERTIFICATES / "apiserver.key"
_TOKENS = RUN / "tokens.csv"
# token, user, uid, groups
_USERS = {
    ADMIN: ("of-admin", "admin", "system:masters"),
    KUBELET: ("of-kubelet", f"system:node:{NODE}", "system:nodes"),
    KUBE_PROXY: (
        "of-kube-proxy",
        "system:kube-proxy",
        "system:authenticated",
    ),  # the cluster role system:node-proxier is bound to it
}
_ETCD = "http://127.0.0.1:2379"
_START_SECONDS = 300.0


class ControlPlane:
    """Four programs, used by `kubectl`. `start` returns at once; `wait` returns when they can be used."""

    def __init__(self) -> None:
        self.kubectl = Kubectl(ADMIN)
        self.etcd = Program(_etcd())
        self.apiserver = Program(_apiserver())
        self.controllers = Program(_controller_manager())
        self.scheduler = Program(_scheduler())

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
    lines = [f'{token},{user},{user},"{group}"' for token, user, group in _USERS.values()]
    _TOKENS.write_text("\n".join(lines) + "\n")
    for path, (token, _, _) in _USERS.items():
        path.write_text(json.dumps(_kubeconfig(token)))


def _kubeconfig(token: str) -> dict[str, object]:
    cluster = {"server": f"https://{NODE_ADDRESS}", "certificate-authority": str(_CERTIFICATE)}
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
        f"--root-ca-file={_CERTIFICATE}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--allocate-node-cidrs",
        f"--cluster-cidr={POD_SUBNET}",  # kubelet 1.20 reports a node without one seconds later
    ]


def _scheduler() -> list[str | Path]:
    return ["kube-scheduler", f"--kubeconfig={ADMIN}", "--leader-elect=false", "--bind-address=127.0.0.1"]
