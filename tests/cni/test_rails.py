"""The rails of sandboxes, as far as no kernel is needed: who gets a VF that somebody still has."""

import asyncio
from pathlib import Path

from cni.rails import Host, Rails
from tests.deviceplugin.builders import two_rails
from vf.errors import NotReady
from vf.table import Owner, VfTable


def test_two_sandboxes_that_wait_for_one_vf_do_not_wake_each_other() -> None:
    table = VfTable(two_rails())
    (first, busy), (second, _) = ([vf.address for vf in pf.vfs] for pf in two_rails().pfs)
    table.claim(busy, Owner("dying", "eth0", "uid-0"))
    changes = []
    table.observe(lambda: changes.append(1))

    async def main() -> list[object]:
        rails = Rails(table, None, None, None, Host(Path("/"), 0.2))
        waiting = (rails._claim((vf, busy), Owner(name, "eth0", name)) for vf, name in ((first, "a"), (second, "b")))
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(ended) for ended in asyncio.run(main())] == [NotReady, NotReady]
    assert len(changes) < 20
