"""pyroute2's class of messages about links, without the rest of pyroute2.

`import pyroute2` imports each of its 128 modules and the standard library's `unittest`: 7.4 MiB, of which the class of these messages needs 1.4
(`scripts/bench netlink`). So the modules that this class needs are imported below an empty package. A later
`import pyroute2` imports the whole package as ever.

No ADD waits for this import (docs/decisions/0035).
"""

import sys
from importlib.util import find_spec, module_from_spec
from typing import Any

_PACKAGE = "pyroute2"


def _import_module() -> Any:
    """Import the module of the classes."""
    if is_alone := _PACKAGE not in sys.modules:
        spec = find_spec(_PACKAGE)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {_PACKAGE!r}", name=_PACKAGE)
        sys.modules[_PACKAGE] = module_from_spec(spec)  # its path is known, and its code is not run
    try:
        from pyroute2.netlink.rtnl import ifinfmsg  # noqa: PLC0415 - below the empty package

        return ifinfmsg
    finally:
        if is_alone:
            del sys.modules[_PACKAGE]


classes = _import_module()
