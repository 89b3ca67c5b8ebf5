"""One ping from a pod's network namespace, with a time limit."""

import subprocess
from pathlib import Path

ANSWER_SECONDS = 1
_GRACE_SECONDS = 2


def ping(netns: Path, address: str, *, ifname: str | None = None, seconds: int = ANSWER_SECONDS) -> bool:
    """Return whether `address` answers one echo request in time; it is sent through `ifname` if that is given."""
    through = ["-I", ifname] if ifname else []
    command = ["nsenter", f"--net={netns}", "ping", "-c", "1", "-W", str(seconds), "-q", *through, address]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds + _GRACE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
