"""The C library of this process, for system calls that Python 3.11 has no function for.

After a call that returned -1, `ctypes.get_errno()` has its errno, for each thread its own.
"""

import ctypes

# Loaded once: to load it takes longer than the calls that an ADD makes by it.
LIBC = ctypes.CDLL(None, use_errno=True)
