"""Asks the API server every ten seconds whether it has what Kubernetes' own gangs need. Each replica of the webhook asks by itself.

The controllers serve gated pods and PodGroups alike, so two replicas that differ for some seconds do no harm, and nothing has to be published.
"""

import logging
import threading

from railnet.admission.gang.engine_choice import ChosenEngine, GangEngine, Served, chosen, said, served
from railnet.apiserver.client import Absent, ApiServer, RequestFailed
from railnet.apiserver.request import ApiObject, create_dry

_log = logging.getLogger(__name__)
_PROBE = "railnet-probe"
_SECONDS = 10.0  # meanwhile an API server that has lost PodGroups lets the pods of new gangs go, each by itself
_FIRST_SECONDS = 2.0  # while the API server has not answered


class GangEngineProbe:
    """The engine for new pods, as the last answer has it."""

    def __init__(self, api: ApiServer, namespace: str, wanted: GangEngine) -> None:
        """Ask an API server about PodGroups of a namespace, which is the webhook's own."""
        self._api, self._namespace, self._wanted = api, namespace, wanted
        self._has: Served | None = None
        self._said = ""

    def engine(self) -> ChosenEngine:
        """Return the engine for new pods; any thread may call it."""
        return chosen(self._wanted, self._has)

    def start(self) -> None:
        """Ask from now on, in a thread that ends with the process. With the gates as the engine, nothing is asked."""
        if self._wanted is not GangEngine.GATES:
            threading.Thread(target=self._run, name="probe of PodGroups", daemon=True).start()

    def ask(self) -> None:
        """Ask once. While the API server does not answer, its last answer counts."""
        try:
            has = self._has = served(self._answer())
        except RequestFailed as error:
            self._say(f"Railnet does not know whether gangs may use PodGroups: {error}")
            return
        self._say(said(self._wanted, has))

    def _run(self) -> None:
        never = threading.Event()
        while True:
            self.ask()
            never.wait(_FIRST_SECONDS if self._has is None else _SECONDS)

    def _answer(self) -> dict[str, object] | None:
        about = ApiObject("scheduling.k8s.io/v1beta1", "podgroups", _PROBE, self._namespace)
        body = {
            "apiVersion": about.api_version,
            "kind": "PodGroup",
            "metadata": {"name": about.name, "namespace": self._namespace},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": 1}},
                "schedulingConstraints": {"topology": [{"key": "kubernetes.io/hostname"}]},
            },
        }
        try:
            return self._api.send(create_dry(about, body))
        except Absent:
            return None

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            _log.info("%s", text)
