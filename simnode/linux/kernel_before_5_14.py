"""Run Railnet's daemon as on a kernel before 5.14, which names no PCI device for a netdev: `… -m simnode.linux.kernel_before_5_14 COMMAND`.

COMMAND is that of `simnode.daemon_process`: the interpreter, `-m railnet`, and the daemon's words. It runs in this process.
"""

import runpy
import sys

from railnet.kernel import vf_netdev_recognition
from railnet.kernel.netlink import restored_link_settings, rtnetlink

STARTER = (sys.executable, "-m", "simnode.linux.kernel_before_5_14")
_NO_ATTRIBUTE = 0x3FFF  # NLA_TYPE_MASK: no kernel sends it


def forget_parents() -> None:
    """Have this process read no PCI device of any link, and behave as it does on such a kernel."""
    for module in (rtnetlink, restored_link_settings):
        setattr(module, "PARENT", _NO_ATTRIBUTE)  # noqa: B010 - mypy lets no module be changed that imports the name
    vf_netdev_recognition._kinds[:] = vf_netdev_recognition.kinds_without_device("5.13.0")  # noqa: SLF001 - the kernel's release


if __name__ == "__main__":
    forget_parents()
    sys.argv = sys.argv[sys.argv.index("-m") + 1 :]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
