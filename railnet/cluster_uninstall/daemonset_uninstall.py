"""Puts the DaemonSets into the uninstall mode, and waits until each of their nodes is done.

All that the command knows it reads again in each look, so it may be ended and run again at any time.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from railnet.apiserver.client import Absent, ApiServer, Conflict, RequestFailed
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiObject, Collection, JsonObject, get, json_patch
from railnet.cli.messages import say
from railnet.cluster_uninstall import gang_release, uninstall_mode
from railnet.cluster_uninstall.deadline import Deadline
from railnet.cluster_uninstall.failure import NotUninstalled
from railnet.cluster_uninstall.progress import UninstallProgress, progress
from railnet.cluster_uninstall.webhook_deletion import delete_webhook

_LABEL = "app.kubernetes.io/name=railnet"  # of each DaemonSet of Railnet's
_LOOK_SECONDS = 3.0
_AFTERWARDS = (
    "The nodes go on with it: run this again to wait longer, with a longer --timeout; or go on without these nodes (`helm uninstall "
    "--no-hooks`), on which all that is left works without a daemon"
)


def _now() -> datetime:
    return datetime.now(UTC)


class ClusterUninstall:
    """The DaemonSets of a namespace, and the pods on their nodes."""

    def __init__(
        self,
        api: ApiServer,
        namespace: str,
        deadline: Deadline,
        *,
        webhook: bool = False,
        gangs: bool = False,
        now: Callable[[], datetime] = _now,
    ) -> None:
        """Reach them through an API server.

        Args:
            api: the API server; it tries again what fails for a time.
            namespace: of the DaemonSets.
            deadline: when the command gives up.
            webhook: whether the webhook configuration is deleted first; so it is with `gangs`.
            gangs: whether pods that wait for their gang are let go first.
            now: the time that timestamps are compared with.
        """
        self._api, self._namespace, self._deadline, self._now = api, namespace, deadline, now
        self._webhook, self._gangs = webhook or gangs, gangs
        self._daemon_sets = Collection("apps/v1", "daemonsets", namespace, labels=_LABEL)
        self._pods = Collection("v1", "pods", namespace)
        self._state: UninstallProgress | None = None

    def run(self) -> str:
        """Return what was done, when all nodes are done. Each change is told on standard error.

        Raises:
            NotUninstalled: the time is over, or the API server refuses a request.
            Misconfigured: a DaemonSet is not Railnet's.
        """
        try:
            if self._webhook and delete_webhook(self._api):
                say("the webhook configuration is deleted: new training pods get no rail")
            if self._gangs:
                removed = gang_release.release_all(self._api, self._deadline.rest)
                say(f"pods that do not wait for their gang any more: {removed}")
            return self._uninstall()
        except RequestFailed as error:
            state = "" if self._state is None else f"; at the last look: {self._state}"
            raise NotUninstalled(f"{error}{state}") from None

    def _uninstall(self) -> str:
        last = ""
        while daemon_sets := self._switched():
            self._state = state = progress(self._namespace, daemon_sets, self._list(self._pods), self._now())
            if state.complete:
                return f"the runtime is given back to its primary network on all nodes ({state.wanted})"
            if str(state) != last:
                say(state)
                last = str(state)
            if not self._deadline.rest(_LOOK_SECONDS):
                raise NotUninstalled(f"not done in {self._deadline.seconds:g} s: {state}. {_AFTERWARDS}")
        return f"no DaemonSet in namespace {self._namespace} has the label {_LABEL}: there is nothing to uninstall"

    def _switched(self) -> list[JsonObject]:
        """Return the DaemonSets; each is in the uninstall mode."""
        return [switched for daemon_set in self._list(self._daemon_sets) if (switched := self._switch(daemon_set))]

    def _switch(self, daemon_set: JsonObject) -> JsonObject | None:
        """Put a DaemonSet into the uninstall mode, and return it as it is then; None if it is gone."""
        steps = uninstall_mode.steps(daemon_set)
        if not steps:
            return daemon_set
        name = daemon_set["metadata"]["name"]
        about = ApiObject("apps/v1", "daemonsets", name, self._namespace)
        try:
            switched = self._api.send(json_patch(about, steps))
        except Absent:
            return None
        except Conflict:
            switched = self._api.send(get(about))
            if uninstall_mode.steps(switched):
                raise
            # an earlier try did it, of which only the answer was lost
        say(f"DaemonSet {name} is in the uninstall mode: its nodes give the runtime back")
        return switched

    def _list(self, about: Collection) -> list[JsonObject]:
        return [document for page in pages(self._api, about) for document in page.found]
