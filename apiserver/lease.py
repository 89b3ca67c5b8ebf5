"""Which of several processes leads: the one whose name is in a Lease, which it renews.

The election is the `kubernetes` package's. Its own lock uses the package's generated models and the package's global configuration; this
lock sends through Railnet's client.
"""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple

from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.leaderelectionrecord import LeaderElectionRecord

from apiserver.client import Absent, ApiServer, RequestFailed
from apiserver.request import ApiObject, JsonObject, create, get, update

_log = logging.getLogger(__name__)
# client-go's LeaderElectionConfig recommends 15, 10 and 2 seconds.
_LEASE_SECONDS, _RENEW_SECONDS, _RETRY_SECONDS = 15, 10, 2
_RELEASED_SECONDS = 1


class _Unavailable(NamedTuple):
    """What the election reads of a Lease that could not be read."""

    body: str
    reason: str


class Lease:
    """A Lease as the lock of an election; only one thread uses it."""

    def __init__(self, api: ApiServer, name: str, namespace: str, identity: str) -> None:
        """Elect by the Lease of a name; `identity` is this process's name, which no other process has."""
        self._api, self._about = api, ApiObject("coordination.k8s.io/v1", "leases", name, namespace)
        self.name, self.namespace, self.identity = name, namespace, identity
        self._found: JsonObject = {}

    def get(self, name: str, namespace: str) -> tuple[bool, Any]:  # noqa: ARG002 - the election's interface
        """Read the Lease: True and the election's record, or False and why not."""
        try:
            self._found = self._api.send(get(self._about))
        except RequestFailed as error:
            code = HTTPStatus.NOT_FOUND if isinstance(error, Absent) else error.status
            return False, _Unavailable(json.dumps({"code": code}), str(error))
        return True, _record(self._found.get("spec") or {})

    def create(self, name: str, namespace: str, election_record: Any) -> bool:
        """Create the Lease with a record; return whether that was done."""
        body = {
            "apiVersion": self._about.api_version,
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": _spec(election_record, 0),
        }
        return self._write(lambda: self._api.send(create(self._about, body)))

    def update(self, name: str, namespace: str, updated_record: Any) -> bool:  # noqa: ARG002 - the election's interface
        """Write a record, unless the Lease has changed since it was read; return whether that was done."""
        before = self._found.get("spec") or {}
        moved = before.get("holderIdentity") != updated_record.holder_identity
        spec = _spec(updated_record, int(before.get("leaseTransitions") or 0) + moved)
        return self._write(lambda: self._api.send(update(self._about, {**self._found, "spec": spec})))

    def release(self) -> None:
        """Let another process lead at once, if this one leads still."""
        found, record = self.get(self.name, self.namespace)
        if found and record.holder_identity == self.identity:
            spec = {**self._found["spec"], "holderIdentity": "", "leaseDurationSeconds": _RELEASED_SECONDS}
            self._write(lambda: self._api.send(update(self._about, {**self._found, "spec": spec})))

    def _write(self, send: Callable[[], JsonObject]) -> bool:
        try:
            self._found = send()
        except RequestFailed as error:
            _log.warning("the Lease is not written: %s", error)
            return False
        return True


def lead(lease: Lease, work: Callable[[], None], lost: Callable[[], None]) -> None:
    """Wait until this process leads, and have `work` run in a thread of its own. Blocks until the Lease is lost, or `work` has failed.

    Args:
        lease: the lock.
        work: what only the leader does. It should end soon after `lost` is called.
        lost: called when this process does not lead any more, or `work` has raised an error.
    """
    LeaderElection(Config(lease, _LEASE_SECONDS, _RENEW_SECONDS, _RETRY_SECONDS, work, lost)).run()  # type: ignore[no-untyped-call]


def _record(spec: JsonObject) -> Any:
    holder, seconds = spec.get("holderIdentity"), spec.get("leaseDurationSeconds")
    times = (_local(spec.get("acquireTime")), _local(spec.get("renewTime")))
    return LeaderElectionRecord(holder or None, str(seconds) if seconds else None, *times)  # type: ignore[no-untyped-call]


def _spec(record: Any, transitions: int) -> JsonObject:
    return {
        "holderIdentity": record.holder_identity,
        "leaseDurationSeconds": int(record.lease_duration),
        "acquireTime": _utc(record.acquire_time),
        "renewTime": _utc(record.renew_time),
        "leaseTransitions": transitions,
    }


def _utc(local: str) -> str:
    """Turn the election's time, which is local and has no zone, into a metav1.MicroTime."""
    return datetime.fromisoformat(local).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _local(utc: Any) -> str | None:
    """Turn a metav1.MicroTime into the election's time; None, which lets anyone lead, if it is none."""
    try:
        return str(datetime.fromisoformat(utc).astimezone().replace(tzinfo=None))
    except (TypeError, ValueError):
        return None
