"""The judgement of a soak finds each harm, and its table names it."""

import pytest

from simnode.chaos.job_pauses import Span
from simnode.chaos.soak_judgement import JobLife, Part, Soaked, judged, limit, rendered, summary

GOOD = [JobLife("gang", "a", beside=False, waited=15.0), JobLife("gang", "b", beside=True, waited=29.0)]


def test_jobs_that_wait_at_most_twice_as_long_as_alone_are_well() -> None:
    assert judged(Soaked(1, list(GOOD), parts={"controllers": Part(256, 9.0, 256), "etcd": Part(4000, 9.0)})) == []


@pytest.mark.parametrize(
    ("life", "words"),
    [
        (JobLife("gang", "c", beside=True, waited=30.5), "gang job c waited 30.5 s; permitted are 30.0 s"),
        (
            JobLife("gang", "c", beside=True, waited=30.5, story=("+ 2.0 s c-0: Pulled", "+29.0 s c-1: Scheduled")),
            "gang job c waited 30.5 s; permitted are 30.0 s\n    + 2.0 s c-0: Pulled\n    +29.0 s c-1: Scheduled",
        ),
        (JobLife("gang", "c", beside=True, waited=None), "gang job c never had what it asks for"),
        (JobLife("gang", "c", beside=True, waited=1.0, harm=("p lost its port",)), "gang job c: p lost its port"),
    ],
    ids=["late", "late, with its story", "never", "lost"],
)
def test_harm_of_a_job_is_found(life: JobLife, words: str) -> None:
    assert judged(Soaked(1, [*GOOD, life])) == [words]


def test_kind_of_which_no_job_was_alone_is_not_judged_silently() -> None:
    assert "no gang job ended its wait alone" in judged(Soaked(1, GOOD[1:]))[-1]


def test_short_waits_alone_permit_the_time_that_a_fault_takes() -> None:
    assert limit(Soaked(1, [JobLife("gang", "a", beside=False, waited=0.5)]), "gang") == 20.0


FAULT = Span(1000.0, 1004.0)
PAUSED = JobLife("gang", "c", beside=True, waited=49.0, pauses=(Span(1003.0, 1023.0),))


def test_job_may_wait_for_kubernetes_after_a_fault_of_the_node() -> None:
    assert judged(Soaked(1, [*GOOD, PAUSED], node_faults=[FAULT])) == []


@pytest.mark.parametrize(
    ("life", "faults", "permitted"),
    [
        (PAUSED, [], "30.0"),
        (PAUSED, [Span(900.0, 904.0)], "30.0"),
        (PAUSED._replace(pauses=()), [FAULT], "30.0"),
        (PAUSED._replace(waited=50.5), [FAULT], "50.0"),
    ],
    ids=["no fault", "another fault", "no pod failed", "longer than the pause"],
)
def test_job_may_not_wait_without_such_a_cause(life: JobLife, faults: list[Span], permitted: str) -> None:
    words = f"gang job c waited {life.waited:.1f} s; permitted are {permitted} s"

    assert judged(Soaked(1, [*GOOD, life], node_faults=faults)) == [words]


def test_pause_of_a_job_alone_permits_the_others_nothing() -> None:
    alone = JobLife("gang", "p", beside=False, waited=35.0, pauses=(Span(1003.0, 1023.0),))

    assert limit(Soaked(1, [alone, *GOOD], node_faults=[FAULT]), "gang") == 30.0


def test_job_that_never_had_what_it_asks_for_is_harmed_whatever_paused() -> None:
    never = PAUSED._replace(waited=None)

    assert judged(Soaked(1, [*GOOD, never], node_faults=[FAULT])) == ["gang job c never had what it asks for"]


def test_program_that_does_not_fit_into_its_container_is_found() -> None:
    soaked = Soaked(1, list(GOOD), parts={"webhook 0": Part(257, 1.0, 256)})

    assert judged(soaked) == ["webhook 0 had 257 MiB at most; its container may have 256"]


def test_table_has_operations_waits_memory_and_what_was_found() -> None:
    soaked = Soaked(5, list(GOOD), parts={"controllers": Part(90, 1.5, 256)}, violations=["a slice has 8.8.8.8"])
    soaked.operations["sweep"] += 3
    text = "\n".join(rendered(summary(soaked)))

    for words in (
        "operation: sweep",
        "gang, beside",
        "29.0",
        "controllers",
        "seed 5",
        "a slice has 8.8.8.8",
        "violations: 1",
    ):
        assert words in text
