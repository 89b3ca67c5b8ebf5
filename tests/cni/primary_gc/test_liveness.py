"""The rule for dead containers: each sign of life, by itself."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from cni.primary_gc.liveness import LivenessFacts, dead_containers
from railnet.kernel.foreign_state_files import Entry
from tests.cni.primary_gc.state_files import NETNS, STATES, a_result, a_state, an_address, state_file

BOOT, NOW, ADD = 10_000.0, 20_000.0, 90.0
OLD, YOUNG, BEFORE_BOOT = NOW - ADD, NOW - ADD + 1, BOOT - 1
FACTS = LivenessFacts(NOW, BOOT, ADD, listed=frozenset(), recorded=frozenset())
ADDRESS = ip_address("10.244.3.7")


def ids(*files, facts: LivenessFacts = FACTS) -> set[str | None]:
    return {one.container_id for one in dead_containers(files, facts)}


@pytest.mark.parametrize("a_file", [an_address, a_state, a_result])
def test_container_without_a_sign_of_life_is_dead_containers(a_file) -> None:
    (one,) = dead_containers([a_file(modified=OLD)], FACTS)

    assert (one.container_id, "does not list it" in one.why, one.before_boot) == ("c0ffee", True, False)


@pytest.mark.parametrize(
    "alive",
    [
        {"listed": frozenset({"c0ffee"})},
        {"listed": None},
        {"recorded": frozenset({"c0ffee"})},
        {"held": frozenset({ADDRESS})},
        {"bound": frozenset({NETNS})},
    ],
    ids=["listed", "list unknown", "recorded", "has its address", "has its namespace"],
)
def test_container_is_left_alone_by_each_sign_of_life(alive) -> None:
    files = [an_address(modified=OLD), a_state(modified=OLD), a_result(modified=OLD)]

    assert ids(*files) == {"c0ffee"}
    assert ids(*files, facts=replace(FACTS, **alive)) == set()


def test_container_is_as_young_as_the_youngest_of_its_files() -> None:
    assert ids(a_state(modified=OLD), an_address(modified=YOUNG)) == set()
    assert ids(a_state(modified=NOW + 3600)) == set()  # the clock was set back


def test_containers_are_judged_each_by_its_own_files() -> None:
    facts = replace(FACTS, listed=frozenset({"beef"}))

    assert ids(an_address("c0ffee", modified=OLD), an_address("beef", modified=OLD), facts=facts) == {"c0ffee"}


def test_address_that_another_container_has_now_is_no_sign_of_life() -> None:
    facts = replace(FACTS, held=frozenset({ADDRESS}))

    assert ids(a_result("c0ffee", modified=OLD), an_address("beef", modified=OLD), facts=facts) == {"c0ffee"}


# Older than the boot.


@pytest.mark.parametrize("listed", [None, frozenset({"c0ffee"})], ids=["list unknown", "listed"])
def test_container_older_than_the_boot_is_dead_though_the_runtime_lists_it(listed) -> None:
    (one,) = dead_containers([an_address(modified=BEFORE_BOOT)], replace(FACTS, listed=listed))

    assert one.before_boot


@pytest.mark.parametrize(
    "alive",
    [
        {"held": frozenset({ADDRESS})},
        {"bound": frozenset({NETNS})},
        {"recorded": frozenset({"c0ffee"})},
    ],
    ids=["has its address", "has its namespace", "recorded"],
)
def test_container_that_only_seems_older_than_the_boot_is_left_alone(alive) -> None:
    assert ids(a_result(modified=BEFORE_BOOT), facts=replace(FACTS, **alive)) == set()


def test_another_process_of_the_same_number_is_no_sign_of_life_after_a_boot() -> None:
    path = "/proc/4711/ns/net"
    facts = replace(FACTS, bound=frozenset({path}))

    assert ids(a_result(modified=BEFORE_BOOT, sandbox=path), facts=facts) == {"c0ffee"}
    assert ids(a_result(modified=OLD, sandbox=path), facts=facts) == set()


def test_container_with_files_of_both_sides_of_the_boot_is_of_this_boot() -> None:
    facts = replace(FACTS, listed=frozenset({"c0ffee"}))

    assert ids(a_state(modified=BEFORE_BOOT), an_address(modified=OLD), facts=facts) == set()


# Files that say less.


@pytest.mark.parametrize("modified", [OLD, BEFORE_BOOT])
def test_address_reserved_without_an_owner_is_dead_when_it_is_old(modified: float) -> None:
    facts = replace(FACTS, listed=None)

    assert ids(an_address("", modified=modified), facts=facts) == {None}
    assert ids(an_address("", modified=YOUNG), facts=facts) == set()
    assert ids(an_address("", modified=modified), facts=replace(facts, held=frozenset({ADDRESS}))) == set()


def test_addresses_without_an_owner_are_judged_one_by_one() -> None:
    old, young = an_address("", "10.244.3.8", modified=OLD), an_address("", modified=YOUNG)

    assert [one.files for one in dead_containers([young, old], FACTS)] == [(old,)]


def test_file_that_cannot_be_read_counts_with_others_or_before_the_boot() -> None:
    broken, older = (state_file(STATES, Entry("c0ffee", b"", modified)) for modified in (OLD, BEFORE_BOOT))

    assert ids(broken) == set()
    assert ids(broken, an_address(modified=OLD)) == {"c0ffee"}
    assert ids(older) == {"c0ffee"}
