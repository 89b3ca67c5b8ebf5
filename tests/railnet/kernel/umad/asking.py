"""A program on a host of the simulated fabric: asks for the port's neighbour as the daemon does, and prints what it is told.

libumad2sim does not take the place of openat2(2), by which the daemon opens the device. So the device is opened by libibumad, the library of
smpquery; everything after that is `railnet.kernel.umad.query`.
"""

import ctypes
import json
import sys

from railnet.kernel.umad.query import QueryPatience, ask


def main() -> None:
    """Print the neighbour, or the number of the error."""
    library = ctypes.CDLL("libibumad.so.3")
    assert library.umad_init() == 0
    fd = library.umad_get_fd(library.umad_open_port(b"ibsim0", 1))
    try:
        found = ask(fd, patience=QueryPatience(retries=0, timeout_ms=100, seconds=float(sys.argv[1])))
        told: object = [found.kind, found.node_guid.value, found.port]
    except OSError as error:
        told = error.errno
    sys.stdout.write(json.dumps(told))


main()
