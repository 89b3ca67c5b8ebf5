"""`scripts/setup` and `scripts/unpack-debian-packages`: what is made for a script, and what is printed when something cannot be fetched."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MIRROR = "http://127.0.0.1:9/debian"  # nothing answers there


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment with an empty cache, in which `sleep` takes no time."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sleep").symlink_to("/bin/true")
    return {**os.environ, "RAILNET_CACHE": str(tmp_path / "cache"), "PATH": f"{programs}:{os.environ['PATH']}"}


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def after_setup(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in a script that needs nothing of `scripts/setup`."""
    return run("bash", "-c", f"RAILNET_NEEDS=\nsource scripts/setup\n{line}", **environment)


def test_nothing_is_made_for_a_script_that_needs_nothing(environment: dict[str, str]) -> None:
    done = after_setup('echo "$_root $_cache $_python"', environment)

    assert (done.stdout, done.stderr) == (f"{ROOT} {environment['RAILNET_CACHE']} /usr/bin/python3\n", "")
    assert list(Path(environment["RAILNET_CACHE"]).iterdir()) == []


def test_download_that_fails_is_tried_again(environment: dict[str, str]) -> None:
    line = 'tries=0; fails_once() { ((++tries > 1)); }; _fetch "a package" "an index" fails_once; echo "$tries"'
    done = after_setup(line, environment)

    assert (done.stdout, done.stderr) == (
        "2\n",
        "setup: a package cannot be fetched from an index; trying again in 10 s\n",
    )


def test_download_that_fails_to_the_end_names_what_and_where(environment: dict[str, str]) -> None:
    done = after_setup('_fetch "a package" "an index" false', environment)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "scripts/setup: a package cannot be fetched from an index, for the reason above: check the network and this source, "
        "then run this again"
    )


@pytest.mark.slow  # apt itself tries again, too
def test_mirror_that_does_not_answer_is_named_with_the_suite(environment: dict[str, str], tmp_path: Path) -> None:
    done = run(
        *("scripts/unpack-debian-packages", "bookworm", tmp_path / "new", "hello"),
        **environment | {"RAILNET_DEBIAN_MIRROR": MIRROR},
    )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"scripts/unpack-debian-packages: the index of Debian bookworm cannot be fetched from {MIRROR}, for the reason above: "
        "check the network, or set RAILNET_DEBIAN_MIRROR to the URL of another mirror"
    )
