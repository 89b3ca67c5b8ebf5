"""One ping from a pod's network namespace, with a time limit."""

import subprocess
from pathlib import Path

_ANSWER_SECONDS = 1
_GRACE_SECONDS = 2


def ping(netns: Path, address: str, *, ifname: str | None = None) -> bool:
    """Return whether `address` answers one echo request, which is sent through `ifname` if that is given."""
    through = ["-I", ifname] if ifname else []
    command = ["nsenter", f"--net={netns}", "ping", "-c", "1", "-W", str(_ANSWER_SECONDS), "-q", *through, address]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_ANSWER_SECONDS + _GRACE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
