"""How a PF's netdev refuses: with the kernel's errno and what was asked. Any kernel's `lo` has no VFs."""

import os
import subprocess
import sys
from errno import ENODEV, EOPNOTSUPP, EPERM

import pytest

from railnet.kernel.netlink import vf_configuration
from railnet.vf.guid import Guid
from railnet.vf.mac import Mac

REFUSED = EPERM if os.geteuid() else EOPNOTSUPP


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: vf_configuration.set_mac(1, 3, Mac.parse("ba:59:9e:f9:8f:86")), "set MAC ba:59:9e:f9:8f:86 of VF 3"),
        (lambda: vf_configuration.set_guids(1, 0, Guid(1)), "set GUID 00:00:00:00:00:00:00:01 of VF 0"),
    ],
    ids=["MAC", "GUID"],
)
def test_link_without_vfs_refuses_with_what_was_asked(call, says: str) -> None:
    with pytest.raises(OSError, match=f"{says} through PF link 1: ") as refused:
        call()

    assert refused.value.errno == REFUSED


def test_link_that_is_gone_is_enodev() -> None:
    with pytest.raises(OSError, match="through PF link 2147483647") as refused:
        vf_configuration.set_guids(2147483647, 0, Guid(1))

    assert refused.value.errno == (EPERM if os.geteuid() else ENODEV)


@pytest.mark.slow
def test_pyroute2s_messages_come_without_the_rest_of_pyroute2_which_can_be_imported_later() -> None:
    program = (
        "import sys; from railnet.kernel.netlink import vf_configuration; "
        "print('pyroute2' in sys.modules, 'pyroute2.iproute' in sys.modules); "
        "from pyroute2 import IPRoute; from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg; "
        "print(IPRoute.__module__, ifinfmsg is vf_configuration.ifinfmsg)"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout

    assert printed.splitlines() == ["False False", "pyroute2.iproute.linux True"]
