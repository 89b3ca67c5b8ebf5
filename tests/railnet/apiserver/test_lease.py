"""The election by a Lease: candidates are threads, the API server is one object in memory with optimistic locking."""

import calendar
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.leaderelectionrecord import LeaderElectionRecord

from railnet.apiserver.client import Answer, ApiServer
from railnet.apiserver.lease import Lease, Seconds, Withdrawn, lead
from railnet.apiserver.request import Request
from tests.waiting import until

pytestmark = pytest.mark.slow  # the election looks at the Lease once a second
# The package refuses a `retry` below one second, and `renew` below 1.2 of it.
QUICK = Seconds(lease=4.0, renew=2.0, retry=1.0)
# For leaders that must go on, on a machine that runs a thread some seconds late, and in tests that wait for no Lease to run out.
PATIENT = Seconds(lease=600.0, renew=300.0, retry=1.0)
# For a leader that must stop before another one begins: six seconds lie between.
APART = Seconds(lease=8.0, renew=2.0, retry=1.0)


class Store:
    """The Lease as etcd would have it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.writes: list[str] = []

    def put(self, lease: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        metadata = {**lease["metadata"], "resourceVersion": str(self.version), "labels": {"kept": "yes"}}
        self.lease = {**lease, "metadata": metadata}
        self.writes.append(lease["spec"]["holderIdentity"])
        return self.lease

    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec


class Connection:
    """A candidate's own way to the API server, which a test can cut.

    Attributes:
        reached: cleared to make each request wait until it is set again; the request is done then.
        status: an answer's status in place of the real answer.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reached = threading.Event()
        self.reached.set()
        self.status = 0
        self.requests: list[str] = []

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        self.requests.append(request.verb.right)
        self.reached.wait(60)
        with self._store.lock:
            status, found = (self.status, {"message": "planted"}) if self.status else self._answer(request)
        return Answer(status, "application/json", "", json.dumps(found).encode())

    def _answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        store = self._store
        body: Any = request.body
        match request.verb.right:
            case "get" if store.lease is None:
                return 404, {"message": "not found"}
            case "get":
                return 200, store.lease or {}
            case "create" if store.lease is not None:
                return 409, {"message": "exists"}
            case "create":
                return 201, store.put(body)
        assert request.verb.right == "update"
        assert store.lease is not None
        if body["metadata"]["resourceVersion"] != store.lease["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        return 200, store.put(body)


class Candidate:
    """A process that wants to lead: its name is in `leading` from the beginning of its work to its end, and `told` has both in their order."""

    def __init__(
        self, store: Store, name: str, leading: list[str], wrong: list[str], told: list[str], seconds: Seconds = QUICK
    ) -> None:
        self.connection = Connection(store)
        self.lease = Lease(ApiServer(self.connection, lambda: "a-token", "test"), "controllers", "railnet", name)
        self.name = name
        self.lost = threading.Event()
        self.losses = 0
        self.worked = threading.Event()
        self._leading, self._wrong, self._told = leading, wrong, told
        self.thread = threading.Thread(target=lead, args=(self.lease, self._work, self._lose, seconds), daemon=True)

    def start(self) -> "Candidate":
        self.thread.start()
        return self

    def _work(self) -> None:
        self._leading.append(self.name)
        if len(self._leading) > 1:
            self._wrong.append(f"{self._leading} lead at once")
        self._told.append(f"{self.name} leads")
        self.worked.set()
        self.lost.wait()
        self._leading.remove(self.name)

    def _lose(self) -> None:
        self._told.append(f"{self.name} stops")
        self.losses += 1
        self.lost.set()

    def end(self) -> None:
        """Do what the program does on SIGTERM."""
        self.lost.set()
        self.thread.join(20)
        self.lease.release()


class Election:
    def __init__(self) -> None:
        self.store = Store()
        self.leading: list[str] = []
        self.wrong: list[str] = []
        self.told: list[str] = []
        self.candidates: list[Candidate] = []

    def join(self, name: str, seconds: Seconds = QUICK) -> Candidate:
        self.candidates.append(Candidate(self.store, name, self.leading, self.wrong, self.told, seconds))
        return self.candidates[-1].start()

    def until_leading(self, candidate: Candidate, seconds: float = 30.0) -> None:
        until(candidate.worked.is_set, seconds, f"{candidate.name} leads")


@pytest.fixture
def election() -> Iterator[Election]:
    found = Election()
    yield found
    for candidate in found.candidates:
        candidate.lease.withdraw()
        candidate.connection.reached.set()
        candidate.lost.set()
    for candidate in found.candidates:
        candidate.thread.join(20)
        assert not candidate.thread.is_alive()
    assert found.wrong == []


def test_first_candidate_leads_and_the_lease_says_so_as_other_tools_read_it(election: Election) -> None:
    first = election.join("first")
    election.until_leading(first)

    lease = election.store.lease
    assert lease is not None
    assert (lease["apiVersion"], lease["kind"]) == ("coordination.k8s.io/v1", "Lease")
    assert lease["spec"]["holderIdentity"] == "first"
    assert (lease["spec"]["leaseDurationSeconds"], lease["spec"]["leaseTransitions"]) == (4, 0)
    now = time.time()
    for key in ("acquireTime", "renewTime"):  # metav1.MicroTime: six digits, Z
        assert abs(parsed(lease["spec"][key]) - now) < 20


def parsed(micro_time: str) -> float:
    whole, _, fraction = micro_time.removesuffix("Z").partition(".")
    assert len(fraction) == 6
    assert micro_time.endswith("Z")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))


def test_one_of_two_leads_and_renews_and_release_lets_the_other_lead_at_once(election: Election) -> None:
    first = election.join("first", PATIENT)
    election.until_leading(first)
    second = election.join("second", PATIENT)
    begun = election.store.spec()["acquireTime"]
    until(lambda: len(election.store.writes) >= 3, 30, "the leader has renewed the Lease")

    assert set(election.store.writes) == {"first"}
    assert election.store.spec()["acquireTime"] == begun
    assert not second.worked.is_set()

    first.end()
    election.until_leading(second, 60.0)  # the Lease would have run out much later

    assert not first.thread.is_alive()
    assert first.losses == 1
    writes = election.store.writes
    assert set(writes[writes.index("") :]) == {"", "second"}
    assert election.store.spec()["leaseTransitions"] == 1
    assert election.store.lease is not None
    assert election.store.lease["metadata"]["labels"] == {"kept": "yes"}


@pytest.mark.parametrize("how", ["hangs", "refuses"])
def test_leader_whose_api_server_does_not_answer_stops_before_another_begins(election: Election, how: str) -> None:
    """The other candidate still reaches the API server. That only one leads is checked at each beginning (`Candidate`)."""
    first = election.join("first", APART)
    election.until_leading(first)
    second = election.join("second", APART)
    until(lambda: len(election.store.writes) >= 2, 30, "the leader has renewed the Lease")

    if how == "hangs":
        first.connection.reached.clear()
    else:
        first.connection.status = 503
    until(first.lost.is_set, 30, "the first stops")
    election.until_leading(second)

    assert election.told == ["first leads", "first stops", "second leads"]
    first.connection.reached.set()  # the request that hung is done now: it must not take the Lease back
    first.connection.status = 0
    first.thread.join(20)
    assert not first.thread.is_alive()
    assert first.losses == 1
    assert election.store.spec()["holderIdentity"] == "second"


def test_another_leads_after_the_lease_of_a_dead_leader_ran_out(election: Election) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 4, "acquireTime": now, "renewTime": now}
    with election.store.lock:
        election.store.put({"metadata": {"name": "controllers"}, "spec": spec})
    began = time.monotonic()

    election.until_leading(election.join("second"))

    assert time.monotonic() - began >= QUICK.lease
    assert election.store.spec()["leaseTransitions"] == 1


def test_clocks_of_other_nodes_do_not_count(election: Election) -> None:
    """A renewal that lies in the past by this node's clock is young when it is first seen."""
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 4, "acquireTime": "2020-01-01T00:00:00.000000Z"}
    with election.store.lock:
        election.store.put({"metadata": {}, "spec": {**spec, "renewTime": "2020-01-01T00:00:00.000000Z"}})
    second = election.join("second", PATIENT)
    until(lambda: len(second.connection.requests) >= 2, 20, "it has looked twice")

    assert not second.worked.is_set()
    assert election.store.writes == ["other"]


def test_follower_that_withdraws_ends_soon_and_was_never_told_that_it_lost(election: Election) -> None:
    first = election.join("first", PATIENT)
    election.until_leading(first)
    second = election.join("second", PATIENT)
    until(lambda: second.connection.requests, 20, "it has looked")
    second.lease.withdraw()
    second.thread.join(20)

    assert not second.thread.is_alive()
    assert second.losses == 0
    second.lease.release()
    assert election.store.spec()["holderIdentity"] == "first"


@pytest.mark.parametrize("error", [None, RuntimeError("planted")], ids=["ends", "fails"])
def test_work_that_ends_ends_the_leadership(error: Exception | None, caplog: pytest.LogCaptureFixture) -> None:
    lost: list[float] = []
    lease = Lease(ApiServer(Connection(Store()), lambda: "a-token", "test"), "controllers", "railnet", "first")

    def work() -> None:
        if error:
            raise error

    lead(lease, work, lambda: lost.append(time.monotonic()), QUICK)

    assert len(lost) == 1
    assert ("the leader's work has failed" in caplog.text) == (error is not None)


MALFORMED = {
    "no spec": {},
    "spec is null": {"spec": None},
    "spec is a list": {"spec": [1]},
    "spec is a text": {"spec": "x"},
    "empty": {"spec": {}},
    "no times": {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 15}},
    "times of another type": {
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "acquireTime": 5, "renewTime": []}
    },
    "times are no times": {
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "acquireTime": "x", "renewTime": "y"}
    },
    "Go's zero time": {
        "spec": {
            "holderIdentity": "other",
            "leaseDurationSeconds": 15,
            "acquireTime": "0001-01-01T00:00:00.000000Z",
            "renewTime": "0001-01-01T00:00:00.000000Z",
        }
    },
    "transitions of another type": {"spec": {"leaseTransitions": "many"}},
    "holder of another type": {"spec": {"holderIdentity": None, "leaseDurationSeconds": {}}},
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED.keys())
def test_lease_with_malformed_content_is_taken_or_waited_for(content: dict[str, Any], election: Election) -> None:
    election.store.lease = {"metadata": {"resourceVersion": "0"}, **content}
    first = election.join("first")
    election.until_leading(first)

    assert election.store.spec()["holderIdentity"] == "first"
    assert election.store.spec()["leaseTransitions"] == 1


@pytest.mark.parametrize("status", [403, 409, 429, 500])
def test_api_server_that_refuses_makes_nobody_lead_and_ends_nothing(election: Election, status: int) -> None:
    first = Candidate(election.store, "first", election.leading, election.wrong, election.told)
    election.candidates.append(first)
    first.connection.status = status
    first.start()
    until(lambda: len(first.connection.requests) >= 2, 20, "it has asked twice")

    assert first.thread.is_alive()
    assert not first.worked.is_set()
    first.connection.status = 0
    election.until_leading(first)


def test_two_that_create_the_lease_at_once_are_one_leader(election: Election) -> None:
    """Both read that there is none before one of them creates it."""
    store = election.store
    leases = [Lease(ApiServer(Connection(store), lambda: "t", "test"), "controllers", "railnet", n) for n in ("a", "b")]
    elections = [
        LeaderElection(_Config(lease))  # type: ignore[no-untyped-call]
        for lease in leases
    ]
    assert [lease.get("controllers", "railnet")[0] for lease in leases] == [False, False]
    for lease in leases:
        lease.get = lambda *_, lease=lease: (False, _Absent())  # type: ignore[method-assign, assignment, misc]

    assert [one.try_acquire_or_renew() for one in elections] == [True, False]  # type: ignore[no-untyped-call]


def test_two_that_take_the_lease_at_once_are_one_leader(election: Election) -> None:
    store = election.store
    store.put({"metadata": {}, "spec": {"holderIdentity": ""}})
    leases = [Lease(ApiServer(Connection(store), lambda: "t", "test"), "controllers", "railnet", n) for n in ("a", "b")]
    read = [lease.get("controllers", "railnet")[1] for lease in leases]
    for lease, record in zip(leases, read, strict=True):
        lease.get = lambda *_, record=record: (True, record)  # type: ignore[method-assign, assignment, misc]

    elections = [LeaderElection(_Config(lease)) for lease in leases]  # type: ignore[no-untyped-call]
    assert [one.try_acquire_or_renew() for one in elections] == [True, False]  # type: ignore[no-untyped-call]
    assert store.spec()["holderIdentity"] == "a"


class _Absent:
    body, reason = '{"code": 404}', "not found"


class _Config:
    def __init__(self, lock: Lease) -> None:
        self.lock = lock
        self.lease_duration = 15


def test_candidate_that_has_withdrawn_writes_nothing_although_it_has_just_read_the_lease() -> None:
    store = Store()
    store.put({"metadata": {}, "spec": {"holderIdentity": ""}})
    lease = Lease(ApiServer(Connection(store), lambda: "t", "test"), "controllers", "railnet", "first")
    now = "2026-01-01 00:00:00.000000"
    record = LeaderElectionRecord("first", "15", now, now)  # type: ignore[no-untyped-call]
    lease.get("controllers", "railnet")
    lease.withdraw()

    with pytest.raises(Withdrawn):
        lease.update("controllers", "railnet", record)
    with pytest.raises(Withdrawn):
        lease.get("controllers", "railnet")
    assert store.writes == [""]


def test_release_of_a_lease_that_another_has_changes_nothing() -> None:
    store = Store()
    store.put({"metadata": {}, "spec": {"holderIdentity": "other"}})
    Lease(ApiServer(Connection(store), lambda: "t", "test"), "controllers", "railnet", "first").release()

    assert store.writes == ["other"]


@pytest.mark.parametrize("status", [404, 409, 500])
def test_release_that_fails_is_logged(status: int, caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.put({"metadata": {}, "spec": {"holderIdentity": "first"}})
    way = Connection(store)
    way.status = status
    Lease(ApiServer(way, lambda: "t", "test"), "controllers", "railnet", "first").release()

    assert "the Lease is not released, and another process leads when it has run out" in caplog.text


def test_recommended_times_leave_the_work_time_to_end() -> None:
    seconds = Seconds()

    assert seconds.lease - seconds.renew >= 5.0
    assert seconds.renew > 1.2 * seconds.retry
