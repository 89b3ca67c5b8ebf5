"""The judgement of a soak finds each harm, and its table names it."""

import pytest

from simnode.chaos.soak_judgement import JobLife, Part, Soaked, judged, limit, rendered, summary

GOOD = [JobLife("gang", "a", beside=False, waited=15.0), JobLife("gang", "b", beside=True, waited=29.0)]


def test_jobs_that_wait_at_most_twice_as_long_as_alone_are_well() -> None:
    assert judged(Soaked(1, list(GOOD), parts={"controllers": Part(256, 9.0, 256), "etcd": Part(4000, 9.0)})) == []


@pytest.mark.parametrize(
    ("life", "words"),
    [
        (JobLife("gang", "c", beside=True, waited=30.5), "gang job c waited 30.5 s; permitted are 30.0 s"),
        (JobLife("gang", "c", beside=True, waited=None), "gang job c never had what it asks for"),
        (JobLife("gang", "c", beside=True, waited=1.0, harm=("p lost its port",)), "gang job c: p lost its port"),
    ],
    ids=["late", "never", "lost"],
)
def test_harm_of_a_job_is_found(life: JobLife, words: str) -> None:
    assert judged(Soaked(1, [*GOOD, life])) == [words]


def test_kind_of_which_no_job_was_alone_is_not_judged_silently() -> None:
    assert "no gang job ended its wait alone" in judged(Soaked(1, GOOD[1:]))[-1]


def test_short_waits_alone_permit_the_time_that_a_fault_takes() -> None:
    assert limit([JobLife("gang", "a", beside=False, waited=0.5)], "gang") == 20.0


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
