"""Asks the API server which Kubernetes it is, in a thread: again until it answers, and then every ten minutes, since clusters are upgraded."""

import logging
import random
import threading

from railnet.apiserver.client import ApiServer, RequestFailed
from railnet.apiserver.request import ServerVersion, get
from railnet.backoff import Backoff
from railnet.jobs.kubernetes_version import GANGS_SINCE, KubernetesVersion, said

_log = logging.getLogger(__name__)
_BACKOFF = Backoff(first_seconds=0.5, longest_seconds=30.0)
_KNOWN_PAUSE_SECONDS = 600.0


class AskedVersion:
    """The API server's version as it last said it.

    Attributes:
        kubernetes: the version; None until the API server has said it. Any thread may read it.
        asked: set when the first question has its answer, or has failed.
    """

    def __init__(self, api: ApiServer) -> None:
        """Ask an API server, when `run` is called."""
        self._api, self._retry_after = api, 0.0
        self.kubernetes: KubernetesVersion | None = None
        self.asked = threading.Event()

    def run(self, ended: threading.Event) -> None:
        """Ask until `ended` is set."""
        failures = 0
        while not ended.is_set():
            trouble = self._ask()
            self.asked.set()
            if trouble:
                failures += 1
                pause = max(_BACKOFF.pause(failures, random.random()), self._retry_after)  # noqa: S311 - no secret
                _log.warning("%s; %s; trying again in %.1f s", trouble, self._meanwhile(), pause)
                ended.wait(pause)
            else:
                failures = 0
                ended.wait(_KNOWN_PAUSE_SECONDS)

    def _ask(self) -> str:
        """Ask once; return why the version is not known, empty if it is."""
        self._retry_after = 0.0
        try:
            version = said(self._api.send(get(ServerVersion())))
        except RequestFailed as error:
            self._retry_after = error.retry_after
            return str(error)
        if version is None:
            return "the API server's answer for /version has no version"
        if version != self.kubernetes:
            able = (
                "pods wait for their gangs"
                if version >= GANGS_SINCE
                else f"gangs need {GANGS_SINCE}, so no pod waits for one"
            )
            _log.info("the API server is Kubernetes %s: %s", version, able)
        self.kubernetes = version
        return ""

    def _meanwhile(self) -> str:
        return "no pod waits for its gang until then" if self.kubernetes is None else f"it was {self.kubernetes} before"
