"""A write that was refused is not sent again at once, and after each refusal later."""

from railnet.gangs.pending_writes import PendingWrites
from railnet.gangs.planning_pass_state import PlanningPass
from railnet.gangs.planning_result import Evict, WriteOutcome
from railnet.gangs.pod import GangPod, GangPods
from railnet.jobs.reported_pod import ReportedPod
from tests.jittered import jittered
from tests.railnet.controllers.gangs.gang_cluster import pod_of


def a_pod() -> GangPod:
    found = pod_of("bert", "bert-0")
    found["metadata"] |= {"uid": "uid-1", "resourceVersion": "7"}
    pod = GangPods().reduce(ReportedPod(found))
    assert pod is not None
    return pod


def refused(jitter: float, times: int) -> list[float]:
    """Refuse a write again and again, each time as soon as it is sent; return the pauses."""
    pending, pod, now, pauses = PendingWrites(), a_pod(), 0.0, list[float]()
    for _ in range(times):
        pending.refused(WriteOutcome(pod.name, Evict(), "a policy refuses it"), now, jitter)
        current = PlanningPass(now, now, lambda _: None)
        assert not pending.put(pod, Evict(), current)
        assert current.due is not None
        pauses.append(current.due - now)
        now = current.due
        assert pending.put(pod, Evict(), PlanningPass(now, now, lambda _: None))
    return pauses


def test_refused_write_waits_for_twice_as_long_each_time() -> None:
    assert refused(0.5, 10) == [jittered(one) for one in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30)]


def test_refused_write_waits_for_less_with_less_jitter() -> None:
    assert sum(refused(0.1, 5)) < sum(refused(0.9, 5))
