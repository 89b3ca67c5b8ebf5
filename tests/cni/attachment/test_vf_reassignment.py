"""Claims of a VF that another sandbox still has."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cni.attachment.vf_reassignment import Claims
from railnet.errors import NotReady
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import Owner, VfTable
from tests.deviceplugin.builders import two_rails

(FIRST, BUSY), (SECOND, _) = ([vf.address for vf in pf.vfs] for pf in two_rails().pfs)
DYING, ONE, OTHER = (Owner(name, "eth0", f"uid-{name}") for name in ("dying", "one", "other"))


class Node:
    """A VF table in which a dying sandbox has one VF; counts the changes."""

    def __init__(self) -> None:
        self.table = VfTable(two_rails())
        self.table.claim(BUSY, DYING)
        self.changes = 0
        self.table.observe(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def owners(self, *vfs: PciAddress) -> list[Owner | None]:
        return [self.table.owner(vf) for vf in vfs]

    def run(self, main: Callable[[Claims], Awaitable[object]], seconds: float = 20) -> object:
        async def whole() -> object:
            return await main(Claims(self.table, seconds))

        return asyncio.run(whole())


@pytest.fixture
def node() -> Node:
    return Node()


def test_two_sandboxes_that_wait_for_one_vf_do_not_wake_each_other(node: Node) -> None:
    async def main(claims: Claims) -> list[object]:
        waiting = (claims.claim((vf, BUSY), owner) for vf, owner in ((FIRST, ONE), (SECOND, OTHER)))
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(ended) for ended in node.run(main, 0.2)] == [NotReady, NotReady]
    assert node.changes == 0


def test_claim_that_times_out_names_the_owners_and_claims_nothing(node: Node) -> None:
    with pytest.raises(NotReady, match=f"taken down: {BUSY} by dying; kubelet tries again"):
        node.run(lambda claims: claims.claim((FIRST, BUSY), ONE), 0.05)

    assert node.owners(FIRST, BUSY) == [None, DYING]


def test_first_of_two_waiting_claims_gets_the_vf_and_the_second_waits_for_it(node: Node) -> None:
    async def main(claims: Claims) -> list[Owner | None]:
        one = asyncio.create_task(claims.claim((BUSY,), ONE))
        other = asyncio.create_task(claims.claim((BUSY,), OTHER))
        await asyncio.sleep(0)
        claims.release((BUSY,), DYING)
        await one
        then = node.owners(BUSY)
        claims.release((BUSY,), ONE)
        await other
        return then

    assert node.run(main) == [ONE]
    assert node.owners(BUSY) == [OTHER]


def test_claim_that_is_cancelled_while_it_waits_claims_nothing(node: Node) -> None:
    async def main(claims: Claims) -> None:
        waiting = asyncio.create_task(claims.claim((FIRST, BUSY), ONE))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        claims.release((BUSY,), DYING)

    node.run(main)

    assert node.owners(FIRST, BUSY) == [None, None]
    assert len(node.table._observers) == 1  # the test's own


def test_late_release_takes_nothing_from_the_next_owner(node: Node) -> None:
    async def main(claims: Claims) -> None:
        claims.release((BUSY,), DYING)
        await claims.claim((BUSY,), ONE)
        claims.release((BUSY,), DYING)

    node.run(main)

    assert node.owners(BUSY) == [ONE]
