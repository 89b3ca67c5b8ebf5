"""Who still needs the executable, told from a runtime's cache and our journal, on a host that is a folder of the test's."""

import asyncio
import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon.conflist import FOLDER, NAME
from railnet.install import installer as install_module
from railnet.install import uninstaller as uninstall_module
from railnet.install.uninstaller import Leaving, sandboxes

OURS = {"cniVersion": "0.3.1", "name": "cbr0", "plugins": [{"type": "railnet", "primary": "/x"}]}
FLANNEL = {"cniVersion": "0.3.1", "name": "cbr0", "plugins": [{"type": "flannel"}]}
NETNS = "/var/run/netns/cni-1"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host with flannel and Railnet, and with Debian's absolute link from /var/run."""
    host = tmp_path_factory.mktemp("host")
    for folder in (FOLDER, "/opt/cni/bin", "/run/netns", "/run/railnet/journal", "/var"):
        (host / folder.lstrip("/")).mkdir(parents=True)
    (host / "var/run").symlink_to("/run")
    (host / "proc").mkdir()
    (host / FOLDER.lstrip("/") / "10-flannel.conflist").write_text(json.dumps(FLANNEL))
    (host / FOLDER.lstrip("/") / NAME).write_text(json.dumps(OURS))
    install_module.install(Configuration(host=replace(HostConfiguration(), root=host)), lambda root, executable: None)
    (host / "run/netns/cni-1").write_bytes(b"")
    return host


@pytest.fixture
def host(installed: Path, tmp_path: Path) -> Path:
    """A copy of the host for one test; to install Railnet takes ten times as long."""
    return shutil.copytree(installed, tmp_path / "host", symlinks=True)


def entry(configuration: object = OURS, netns: str | None = NETNS, **changes: object) -> dict[str, Any]:
    """Spell what libcni keeps of an ADD."""
    interfaces = [{"name": "veth1"}, {"name": "eth0", "sandbox": netns}]
    return {
        "kind": "cniCacheV1",
        "containerId": "abc",
        "config": base64.b64encode(json.dumps(configuration).encode()).decode(),
        "ifName": "eth0",
        "networkName": "cbr0",
        "result": {"cniVersion": "0.3.1", "interfaces": interfaces if netns else []},
        **changes,
    }


def caches(host: Path, content: object, folder: str = "var/lib/cni/results") -> Path:
    path = host / folder / "cbr0-abc-eth0"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("folder", ["var/lib/cni/results", "var/lib/cni/cache/results"])
def test_sandbox_made_through_railnet_is_known_by_the_runtimes_cache(host: Path, folder: str) -> None:
    caches(host, entry(), folder)

    assert sandboxes(host) == ["sandbox abc@eth0"]


def test_sandbox_is_found_in_the_cache_of_a_conflist_and_of_a_single_plugin(host: Path) -> None:
    caches(host, entry({"cniVersion": "0.3.1", "name": "cbr0", "type": "railnet"}))

    assert sandboxes(host) == ["sandbox abc@eth0"]


@pytest.mark.parametrize("netns", [NETNS, None], ids=["living", "unknown"])
def test_sandbox_counts_unless_its_namespace_is_gone(host: Path, netns: str | None) -> None:
    caches(host, entry(netns=netns))

    assert len(sandboxes(host)) == 1


@pytest.mark.parametrize(
    "content",
    [
        entry(FLANNEL),
        entry(netns="/var/run/netns/of-before-the-reboot"),
        {"cniVersion": "0.3.1", "ips": []},
        "",
        "[]",
        entry(config="%"),
        entry(config=None),
        entry([]),
    ],
    ids=["made by flannel", "gone", "a bare result", "empty", "a list", "no base64", "no configuration", "odd"],
)
def test_other_cache_entries_do_not_count(host: Path, content: object) -> None:
    caches(host, content)

    assert sandboxes(host) == []


def test_sandbox_with_a_record_counts_without_a_cache_entry(host: Path) -> None:
    (host / "run/railnet/journal/abc@eth0.json").write_text("{}")
    (host / "run/railnet/journal/.temporary").write_text("")

    assert sandboxes(host) == ["sandbox abc@eth0"]


def test_sandbox_in_cache_and_journal_is_named_once(host: Path) -> None:
    caches(host, entry())
    (host / "run/railnet/journal/abc@eth0.json").write_text("{}")

    assert sandboxes(host) == ["sandbox abc@eth0"]


def test_runtime_is_given_back_to_the_primary_at_once(host: Path) -> None:
    folder = host / FOLDER.lstrip("/")
    (folder / f"{NAME}.cilium_bak").write_text("")

    Leaving(host).deactivate()

    assert [path.name for path in folder.iterdir()] == ["10-flannel.conflist"]


def test_deactivation_without_a_conflist_succeeds(host: Path, tmp_path: Path) -> None:
    Leaving(host).deactivate()
    Leaving(host).deactivate()
    Leaving(tmp_path / "nothing").deactivate()


def runs(host: Path) -> Path:
    """Have a request in flight on the host, as its /proc shows it; gives its folder."""
    process = host / "proc/4711"
    process.mkdir()
    (process / "cmdline").write_bytes(b"/usr/bin/python3\0-ISE\0/opt/cni/bin/railnet\0")
    (process / "environ").write_bytes(b"CNI_COMMAND=DEL\0")
    (process / "status").write_bytes(b"NSpid:\t4711\n")
    return process


@pytest.mark.parametrize("by", ["a sandbox", "a request"])
def test_executable_stays_until_nothing_needs_it(host: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(uninstall_module, "_LOOK_SECONDS", 0.01)
    leaving = Leaving(host)
    needs_it = caches(host, entry()) if by == "a sandbox" else runs(host)

    async def scenario() -> tuple[bool, str | None]:
        serving = asyncio.create_task(leaving.serve(lambda: None))
        async with asyncio.timeout(10):
            while leaving.trouble is None:  # noqa: ASYNC110 - no event reports a file
                await asyncio.sleep(0.01)
            during = (host / "opt/cni/bin/railnet").exists(), leaving.trouble
            needs_it.rename(host / "gone")
            await serving
        return during

    there, trouble = asyncio.run(scenario())

    assert there
    assert "1 still need it (" in trouble
    assert leaving.done
    assert list((host / "opt/cni/bin").iterdir()) == []


def test_state_of_the_daemon_is_removed(host: Path) -> None:
    Leaving(host).forget()

    assert not (host / "run/railnet").exists()
