"""Modules that libraries import at their start, and that a daemon hardly ever uses: each is imported at its first use.

An imported module takes memory for as long as its process lives (`scripts/bench memory`). The libraries stay as they are: they get a
module that is empty until one of its names is looked up, and this lookup imports the module.
"""

import sys
import threading
import typing
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType

# With the library that imports it, and what would use it.
MODULES: Mapping[str, str] = {
    "typing_extensions": "grpc, for names that `typing` has; backports for older versions of Python",
    "google.protobuf.internal.python_message": "protobuf; messages in Python, where protobuf has no library in C",
    "shutil": "ctypes.util, tempfile; a search for libraries without ldconfig. It imports bz2 and lzma",
    "tempfile": "ctypes.util; the same search",
    "tokenize": "linecache; the source of a line in a traceback",
    "locale": "subprocess; a pipe whose data is text",
    "calendar": "email; a date with a time zone",
}
# Names that are looked up at the import itself, and that the module has from elsewhere.
_GIVEN: Mapping[str, Mapping[str, object]] = {"typing_extensions": {"Self": typing.Self}}
_removing = threading.Lock()


def postpone(names: Iterable[str] = MODULES) -> None:
    """Have these modules imported at their first use. A module that is imported already, or that is not there, stays as it is."""
    for name in names:
        if name not in sys.modules and (module := _empty(name)) is not None:
            sys.modules[name] = module


def _empty(name: str) -> ModuleType | None:
    """Make a module with the names that say where it is, and those of `_GIVEN`."""
    try:
        spec = find_spec(name)  # it imports the packages around it
    except ModuleNotFoundError:
        return None
    if spec is None:
        return None
    module = module_from_spec(spec)

    def look_up(attribute: str) -> object:
        if attribute == "__path__":  # each `from … import` asks for it; a package has it already
            raise AttributeError(f"module {name!r} is no package")
        with _removing:
            if sys.modules.get(name) is module:
                del sys.modules[name]
        return getattr(import_module(name), attribute)

    vars(module).update(_GIVEN.get(name, {}))
    module.__getattr__ = look_up  # type: ignore[method-assign] # PEP 562
    return module
