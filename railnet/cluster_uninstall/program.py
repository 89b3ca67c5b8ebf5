"""Builds `railnet uninstall --cluster` from its parts, with the rights of its pod's service account.

It needs what is in the node's image alone, which each cluster with Railnet has.

The rights: in its own namespace `get`, `list` and `patch` on daemonsets and `list` on pods; with `webhook` or `gangs`, `get` and `delete` on
the mutatingwebhookconfiguration railnet-admission; with `gangs`, in the cluster `list` and `patch` on pods and `create` on podgroups.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from railnet.apiserver import service_account
from railnet.apiserver.node_transport import NodeTransport
from railnet.apiserver.service_account import NotInCluster
from railnet.cluster_uninstall.daemonset_uninstall import ClusterUninstall
from railnet.cluster_uninstall.deadline import Deadline, RetryingApiServer
from railnet.errors import Misconfigured

_NAME = "railnet-uninstall"


@dataclass(frozen=True, slots=True)
class UninstallOptions:
    """The options of the command line, which says what each is."""

    account: Path
    seconds: float
    webhook: bool
    gangs: bool


def run(options: UninstallOptions) -> str:
    """Uninstall all nodes, and return what was done.

    Raises:
        Misconfigured: the program runs outside of a cluster, or a DaemonSet is not Railnet's.
        NotUninstalled: the API server refused, or the time is over.
    """
    try:
        account = service_account.find(os.environ, options.account)
    except NotInCluster as error:
        raise Misconfigured(
            f"there is no API server to ask: {error}; `railnet uninstall --cluster` runs in a pod of the cluster, and docs/install.md "
            "says how to uninstall without it"
        ) from None
    namespace = (options.account / "namespace").read_text().strip()
    deadline = Deadline(options.seconds)
    api = RetryingApiServer(NodeTransport(account), account.token, _NAME, deadline)
    return ClusterUninstall(api, namespace, deadline, webhook=options.webhook, gangs=options.gangs).run()
