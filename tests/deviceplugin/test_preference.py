"""Which VFs of a pool are preferred."""

import pytest

from deviceplugin.offers import offers
from deviceplugin.pools import DEFAULT
from deviceplugin.preference import prefer
from tests.deviceplugin.builders import two_rails
from vf.table import VfTable

A1, A2, B1, B2 = "0000:03:00.1", "0000:03:00.2", "0000:83:00.1", "0000:83:00.2"


@pytest.mark.parametrize(
    ("available", "settled", "size", "chosen"),
    [
        ({A1, A2, B1, B2}, set(), 1, [A1]),
        ({A1, A2, B1, B2}, set(), 2, [A1, B1]),
        ({A1, A2, B1, B2}, set(), 3, [A1, B1, A2]),
        ({A1, A2, B1, B2}, {A2}, 2, [A2, B1]),
        ({A1, A2}, set(), 2, [A1, A2]),
        ({A1}, set(), 2, [A1]),
    ],
)
def test_vfs_are_spread_over_pfs_before_one_gives_two(available, settled, size, chosen):
    offered = offers(DEFAULT, DEFAULT[0], VfTable(two_rails()))

    assert prefer(offered, available, settled, size) == chosen
