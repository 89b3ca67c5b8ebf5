"""What was named again and again becomes a set of functions, or everything."""

from railnet.vf.changed_functions import EVERYTHING, MOST, ChangedFunction, ChangedFunctions, changed_functions
from railnet.vf.pci_address import PciAddress


def functions(count: int) -> list[PciAddress]:
    return [PciAddress(0, 3, number >> 3, number & 7) for number in range(count)]


def test_function_that_may_have_gone_is_no_function_that_has_only_changed() -> None:
    first, second = functions(2)

    found = changed_functions(
        {ChangedFunction(one, with_card=True) for one in (first,)}
        | {ChangedFunction(one, with_card=False) for one in (first, second)}
    )

    assert found == ChangedFunctions(frozenset({second}), frozenset({first}))


def test_nothing_named_is_nothing() -> None:
    assert changed_functions([]) == ChangedFunctions()


def test_very_many_functions_are_everything() -> None:
    some = [ChangedFunction(one, with_card=bool(number % 2)) for number, one in enumerate(functions(MOST))]
    one_more = ChangedFunction(PciAddress(1, 0, 0, 0), with_card=False)

    assert not changed_functions(some).everything
    assert changed_functions([*some, one_more]) == EVERYTHING
