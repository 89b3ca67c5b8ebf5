"""The rule for parameter servers: they go when all workers are complete, and stay while one goes on, has failed or is missing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.jobs.clean_up import parameter_server_rule
from railnet.jobs.clean_up.parameter_server_rule import Group, State, TaskPosition, TaskRange, Worker, verdict
from railnet.jobs.clean_up.verdict import Action
from railnet.jobs.operators import OPERATORS, Part

TEMPLATES = next(row for row in OPERATORS if row.page == "tensorflow-templates")
ANY_POD = next(row for row in OPERATORS if row.page == "any-pod")
KUBEDL = next(row for row in OPERATORS if row.page == "kubedl")


def worker(rank: int, state: State = State.COMPLETE, role: str = "worker") -> Worker:
    return Worker(TaskPosition(role, (rank,)), state, f"Job mnist-{role}-{rank}")


def group(*workers: Worker, servers: int = 2, size: int | None = None, **changes: object) -> Group:
    ranks = frozenset((rank,) for rank in range(servers))
    made = Group(workers, ranks, size, frozenset(), 1000.0, named=frozenset(), replicas={})
    return replace(made, **changes)  # type: ignore[arg-type]


class Jobs:
    """What can be true of a job: how many workers it has, what became of each, and what says how many there are."""

    states = st.sampled_from([*State, None])  # None: it is missing
    jobs = st.lists(states, min_size=1, max_size=6)
    said_by = st.sampled_from(["size", "services", "replicas"])


@pytest.mark.slow
@given(Jobs.jobs, Jobs.said_by, st.integers(1, 3), st.randoms(use_true_random=False))
def test_they_go_exactly_when_every_worker_is_complete(
    states: list[State | None], said_by: str, servers: int, order: object
) -> None:
    workers = [worker(rank, state) for rank, state in enumerate(states) if state is not None]
    order.shuffle(workers)  # type: ignore[attr-defined]
    said = {
        "size": {"size": len(states) + servers},
        "services": {"named": frozenset(TaskPosition("worker", (rank,)) for rank in range(len(states)))},
        "replicas": {"replicas": {"worker": len(states)}, "root": State.COMPLETE},
    }[said_by]

    found = verdict(group(*workers, servers=servers, **said))  # type: ignore[arg-type]

    assert (found.action is Action.DELETE) == all(state is State.COMPLETE for state in states)


@given(Jobs.jobs)
def test_a_gap_among_the_ranks_is_a_missing_worker(states: list[State | None]) -> None:
    workers = [worker(rank, state) for rank, state in enumerate(states) if state is not None]

    found = verdict(group(*workers))

    there = [state for state in states if state is not None]
    trailing = next((number for number, state in enumerate(reversed(states)) if state is not None), len(states))
    complete = all(state is State.COMPLETE for state in there)
    whole = len(there) == len(states) - trailing
    assert (found.action is Action.DELETE) == (bool(there) and complete and whole)


@given(Jobs.jobs, Jobs.jobs)
def test_facts_that_have_not_been_asked_for_only_forbid_more(
    states: list[State | None], named: list[State | None]
) -> None:
    workers = [worker(rank, state) for rank, state in enumerate(states) if state is not None]
    asked = group(*workers, named=frozenset(TaskPosition("worker", (rank,)) for rank in range(len(named))))

    if verdict(asked).action is Action.DELETE:
        assert verdict(replace(asked, named=None, replicas=None)).action is Action.DELETE


def test_they_stay_before_there_is_a_worker() -> None:
    assert verdict(group()) == (Action.WAIT, "", None)


def test_what_failed_or_is_missing_is_named_once_no_worker_goes_on() -> None:
    failed = [worker(0), worker(1, State.FAILED), worker(2, State.GOES_ON)]

    assert verdict(group(*failed)).action is Action.WAIT
    assert verdict(group(*failed[:2])).why == "Job mnist-worker-1 failed; start the worker again, or delete the job"
    assert (
        verdict(group(worker(0), worker(2))).why
        == "worker 1 is missing; start the pods that the job lacks, or delete it"
    )


def test_missing_workers_are_named_by_whatever_says_that_they_exist() -> None:
    named = group(worker(0), named=frozenset({TaskPosition("worker", (1,)), TaskPosition("worker", (0,))}))
    sized = group(worker(0), servers=1, size=3)
    counted = group(worker(0), replicas={"worker": 1, "chief": 1})

    assert verdict(named).why.startswith("worker 1 is missing;")
    assert verdict(sized).why.startswith("only 2 of the job's 3 pods are known;")
    assert verdict(counted).why.startswith("chief 0 is missing;")


@pytest.mark.parametrize(
    ("huge", "text"),
    [
        (group(worker(0), replicas={"worker": 2**31 - 1}), "worker 1 is missing, worker 2 is missing"),
        (group(worker(2**40)), "worker 0 is missing, worker 1 is missing"),
        (
            group(Worker(TaskRange("worker", 2**31 - 1), State.COMPLETE, "Job a"), worker(2**31 + 9)),
            "worker 2147483647 is missing, worker 2147483648 is missing",
        ),
    ],
    ids=["replicas", "a_rank", "completions"],
)
def test_huge_number_that_an_author_writes_costs_no_more_than_the_words(huge: Group, text: str) -> None:
    """Each missing worker was written out: a pod with the rank 999999 took 200 MB, and replicas of an int32 all memory."""
    found = verdict(huge)

    assert found.action is Action.KEEP
    assert found.why.startswith(text)
    assert "is missing and more; start the pods" in found.why


def test_workers_of_an_indexed_job_are_those_below_its_completions() -> None:
    indexed = Worker(TaskRange("worker", 3), State.COMPLETE, "Job a")

    assert verdict(group(indexed)) == (Action.DELETE, "all 3 workers are complete", None)
    assert verdict(group(indexed, worker(1))).why == "all 3 workers are complete"
    assert verdict(group(indexed, named=frozenset({TaskPosition("worker", (2,))}))).action is Action.DELETE
    assert verdict(group(indexed, worker(4))).why.startswith("worker 3 is missing; start")
    assert verdict(group(indexed, named=frozenset({TaskPosition("worker", (3,))}))).why.startswith(
        "worker 3 is missing"
    )


def test_size_is_compared_until_the_last_parameter_server_is_gone() -> None:
    """A leader that died has deleted parameter server 0 of 2; the next one finds the rank 1, and the same verdict."""
    left = group(worker(0), worker(1), size=4, servers=2)

    assert verdict(left).action is Action.DELETE
    assert verdict(replace(left, servers=frozenset({(1,)}))).action is Action.DELETE
    assert verdict(replace(left, servers=frozenset({(1,)}), size=5)).action is Action.KEEP


def test_workers_without_a_rank_need_a_size() -> None:
    one = Worker(TaskPosition("worker", ()), State.COMPLETE, "pod a")

    assert verdict(group(one, one)).why.startswith("nothing says how many workers there are")
    assert verdict(group(one, one, size=4)).action is Action.DELETE
    assert verdict(group(one, size=4)).action is Action.KEEP


def test_job_in_the_making_is_waited_for() -> None:
    """Only the ranks say how many workers there are: worker 1 may be created next."""
    young = group(worker(0), youngest_seconds=10.0)

    assert verdict(young) == (Action.WAIT, "", 20.0)
    assert verdict(replace(young, youngest_seconds=-5.0)).seconds == parameter_server_rule.SETTLED_SECONDS
    assert verdict(replace(young, youngest_seconds=30.0)).action is Action.DELETE
    assert verdict(replace(young, size=3)).action is Action.DELETE
    assert verdict(replace(young, named=frozenset({TaskPosition("worker", (0,))}))).action is Action.DELETE


def test_object_that_makes_them_again_is_waited_for() -> None:
    operated = group(worker(0), replicas={"worker": 1})

    assert verdict(replace(operated, root=State.GOES_ON)) == (Action.WAIT, "", 0.0)
    assert verdict(replace(operated, root=State.FAILED)).action is Action.KEEP
    assert verdict(replace(operated, root=State.COMPLETE)).action is Action.DELETE


@pytest.mark.parametrize(("switch", "action"), [("false", Action.WAIT), ("true", Action.DELETE), ("no", Action.KEEP)])
def test_switch(switch: str, action: Action) -> None:
    found = verdict(group(worker(0), switches=frozenset({switch})))

    assert found.action is action
    reason = "railnet.io/ps-cleanup is 'no'; it should be one of: true, false"
    assert (found.why == reason) is (switch == "no")


def test_long_lists_are_cut() -> None:
    missing = frozenset(TaskPosition("worker", (rank,)) for rank in range(1, 12))

    assert verdict(group(worker(0), named=missing)).why.count("is missing") == 5


def test_services_of_single_tasks_are_recognised() -> None:
    selector = {"name": "mnist", "job": "worker", "task": "1"}

    assert parameter_server_rule.service_task(TEMPLATES, "mnist", selector) == TaskPosition("worker", (1,))
    assert parameter_server_rule.service_task(TEMPLATES, "mnist", {**selector, "app": "x"}) == TaskPosition(
        "worker", (1,)
    )


@pytest.mark.parametrize(
    "selector",
    [
        {},
        {"name": "mnist"},
        {"name": "mnist", "job": "worker"},
        {"name": "other", "job": "worker", "task": "1"},
        {"name": "mnist", "job": "master", "task": "1"},
        {"name": "mnist", "job": "worker", "task": "one"},
    ],
)
def test_services_of_more_or_of_others_are_not(selector: dict[str, str]) -> None:
    assert parameter_server_rule.service_task(TEMPLATES, "mnist", selector) is None
    assert parameter_server_rule.service_task(ANY_POD, "mnist", {"railnet.io/net1": "true", **selector}) is None


@pytest.mark.parametrize(
    ("role", "part", "trains"),
    [("worker", Part.TRAINS, True), ("Chief", Part.TRAINS, True), ("ps", Part.TRAINS, False), ("PS", Part.TRAINS, False),
     ("evaluator", Part.APART, False), ("launcher", Part.TRAINS, False)],
)  # fmt: skip
def test_workers_are_what_needs_parameter_servers(role: str, part: Part, trains: bool) -> None:
    assert parameter_server_rule.trains(KUBEDL, role, part) is trains
