"""The limit of locked memory under the real containerd and runc, in a guest whose root may raise limits."""

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_TESTS = "tests/containerd/test_memlock.py"


def test_limit_is_raised_where_runc_may_raise_it() -> None:
    """The node is a simulated one, in namespaces of its own: this guest's cards have no verbs devices."""
    command = [_ROOT / "scripts/with-containerd", sys.executable, "-m", "pytest", "-p", "no:cacheprovider", _TESTS]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=1200)

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "1 passed" in done.stdout
