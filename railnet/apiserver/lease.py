"""Elects one of several processes as the leader: a Lease has the leader's name, and the leader renews the Lease.

The election is the `kubernetes` package's. Its own lock uses the package's generated models and the package's global configuration; this
lock sends through Railnet's client.
"""

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple

from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.leaderelectionrecord import LeaderElectionRecord

from railnet.apiserver.client import Absent, ApiServer, RequestFailed
from railnet.apiserver.request import ApiObject, JsonObject, create, get, update

_log = logging.getLogger(__name__)
_RELEASED_SECONDS = 1


class Seconds(NamedTuple):
    """The times of an election; client-go's LeaderElectionConfig recommends these.

    Attributes:
        lease: another process may lead when it has seen the Lease unchanged for so long.
        renew: a leader that could not renew the Lease for so long does not lead any more. The rest of `lease` is for the end of its work.
        retry: between two looks at the Lease, of the leader and of the others; at least 1.
    """

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0


_RECOMMENDED = Seconds()


class _Unavailable(NamedTuple):
    """The answer that the election reads for a Lease that could not be read."""

    body: str
    reason: str


class Withdrawn(Exception):
    """This process takes no part in the election any more. It ends the election, which knows no other way."""


class Lease:
    """A Lease as the lock of an election. One thread elects; `withdraw` and `release` may be called by any thread.

    Attributes:
        renewed: when the last request was begun that wrote this process's name, by `time.monotonic`.
    """

    def __init__(self, api: ApiServer, name: str, namespace: str, identity: str) -> None:
        """Elect by the Lease of a name; `identity` is this process's name, which no other process has."""
        self._api, self._about = api, ApiObject("coordination.k8s.io/v1", "leases", name, namespace)
        self.name, self.namespace, self.identity = name, namespace, identity
        self._found: JsonObject = {}
        self._begun = self.renewed = time.monotonic()
        self._withdrawn = False

    def get(self, name: str, namespace: str) -> tuple[bool, Any]:  # noqa: ARG002 - the election's interface
        """Read the Lease: True and the election's record, or False and why not.

        Raises:
            Withdrawn: the election must end.
        """
        self._check()
        self._begun = time.monotonic()
        try:
            self._found = self._api.send(get(self._about))
        except RequestFailed as error:
            code = HTTPStatus.NOT_FOUND if isinstance(error, Absent) else error.status
            return False, _Unavailable(json.dumps({"code": code}), str(error))
        return True, _record(_spec_of(self._found))

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
        before = _spec_of(self._found)
        moved = before.get("holderIdentity") != updated_record.holder_identity
        transitions = before.get("leaseTransitions")
        spec = _spec(updated_record, (transitions if isinstance(transitions, int) else 0) + moved)
        return self._write(lambda: self._api.send(update(self._about, {**self._found, "spec": spec})))

    def withdraw(self) -> None:
        """Take no part in the election any more: it ends before its next request. A Lease that this process has runs out."""
        self._withdrawn = True

    def release(self) -> None:
        """Take no part any more, and let another process lead at once if this one leads still. The work must have ended."""
        self.withdraw()
        try:
            lease = self._api.send(get(self._about))
            if _spec_of(lease).get("holderIdentity") == self.identity:
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": _RELEASED_SECONDS}
                self._api.send(update(self._about, {**lease, "spec": spec}))
        except RequestFailed as error:
            _log.warning("the Lease is not released, and another process leads when it has run out: %s", error)

    def _check(self) -> None:
        if self._withdrawn:
            raise Withdrawn

    def _write(self, send: Callable[[], JsonObject]) -> bool:
        self._check()  # the request of `get` may have taken long
        try:
            self._found = send()
        except RequestFailed as error:
            _log.warning("the Lease is not written: %s", error)
            return False
        self.renewed = self._begun
        return True


def lead(lease: Lease, work: Callable[[], None], lost: Callable[[], object], seconds: Seconds = _RECOMMENDED) -> None:
    """Wait until this process leads, and have `work` run in a thread of its own.

    Blocks until the Lease is lost, `work` has ended, or the process withdraws; a few seconds longer, if a request takes as long.

    Args:
        lease: the lock; it can be used for one election.
        work: what only the leader does. It should end soon after `lost` is called.
        lost: called once when this process does not lead any more, also if `work` has ended; by any thread.
        seconds: the times of the election.
    """
    leadership = _Leadership(lease, work, lost, seconds.renew)
    config = Config(lease, *seconds, leadership.begin, leadership.end)  # type: ignore[no-untyped-call]
    try:
        LeaderElection(config).run()  # type: ignore[no-untyped-call]
    except Withdrawn:
        leadership.end()


class _Leadership:
    """The time in which this process leads.

    The election looks at the time between its requests only, and one request may take longer than the Lease: a clock of its own ends the
    leadership in time.
    """

    def __init__(self, lease: Lease, work: Callable[[], None], lost: Callable[[], object], seconds: float) -> None:
        self._lease, self._work, self._lost, self._seconds = lease, work, lost, seconds
        self._lock = threading.Lock()
        self._leads = False
        self._ended = threading.Event()

    def begin(self) -> None:
        """Work until that ends; the election has a thread for it."""
        with self._lock:
            if self._ended.is_set():
                return
            self._leads = True
        threading.Thread(target=self._watch_clock, name="end of the lease", daemon=True).start()
        try:
            self._work()
        except Exception:  # noqa: BLE001 - whatever it is, this process must not be taken for the leader
            _log.exception("the leader's work has failed")
        finally:
            self._lease.withdraw()
            self.end()

    def end(self) -> None:
        """Report that this process does not lead any more, if it has led."""
        with self._lock:
            leads, self._leads = self._leads, False
            self._ended.set()
        if leads:
            self._lost()

    def _watch_clock(self) -> None:
        while not self._ended.wait(max(0.0, self._lease.renewed + self._seconds - time.monotonic())):
            if self._lease.renewed + self._seconds <= time.monotonic():
                _log.error("the Lease was not renewed for %g s", self._seconds)
                self._lease.withdraw()
                self.end()


def _spec_of(lease: JsonObject) -> JsonObject:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}


def _record(spec: JsonObject) -> Any:
    holder, seconds = spec.get("holderIdentity"), spec.get("leaseDurationSeconds")
    times = (_local(spec.get("acquireTime")), _local(spec.get("renewTime")))
    return LeaderElectionRecord(holder or None, str(seconds) if seconds else None, *times)  # type: ignore[no-untyped-call]


def _spec(record: Any, transitions: int) -> JsonObject:
    return {
        "holderIdentity": record.holder_identity,
        "leaseDurationSeconds": math.ceil(float(record.lease_duration)),
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
    except (TypeError, ValueError, OverflowError):
        return None
