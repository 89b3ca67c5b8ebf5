"""What still needs the executable, by the runtime's cache and the journal, on a host that is a folder of the test's."""

import asyncio
import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon.conflist.conflist import NAME
from railnet.install import installer as install_module
from railnet.install import uninstaller as uninstall_module
from railnet.install.uninstaller import Leaving, needed_by
from railnet.kubelet import dra_manager_state
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.vf.record import SandboxPod, encode
from tests.railnet.kubelet.dra_state import a_claim, a_state
from tests.railnet.vf.builders import a_record

FOLDER = str(HostConfiguration().cni_conf)
PRIMARY = f"{FOLDER}/10-flannel.conflist"
OURS = {"cniVersion": "0.3.1", "name": "cbr0", "plugins": [{"type": "railnet", "primary": PRIMARY}]}
FLANNEL = {"cniVersion": "0.3.1", "name": "cbr0", "plugins": [{"type": "flannel"}]}
NETNS = "/var/run/netns/cni-1"


def host_at(root: Path) -> HostConfiguration:
    return replace(HostConfiguration(), root=root)


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
    install_module.install(Configuration(host=host_at(host)), lambda root, executable: None)
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


CNI_ARGS = [["IgnoreUnknown", "1"], ["K8S_POD_NAMESPACE", "team"], ["K8S_POD_NAME", "web-0"], ["K8S_POD_UID", "uid-1"]]


def configuration(path: Path) -> Any:
    """Return the configuration with which CRI-O would run DEL."""
    return json.loads(base64.b64decode(json.loads(path.read_text())["config"]))


@pytest.mark.parametrize("folder", ["var/lib/cni/results", "var/lib/cni/cache/results"])
def test_plain_pod_is_not_waited_for_and_its_del_becomes_the_primarys(host: Path, folder: str) -> None:
    path = caches(host, entry(cniArgs=CNI_ARGS, capabilityArgs={"portMappings": [{"hostPort": 80}]}), folder)
    before = json.loads(path.read_text())

    assert needed_by(host) == []
    assert configuration(path) == FLANNEL
    assert {**json.loads(path.read_text()), "config": ""} == {**before, "config": ""}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_plain_pod_of_a_single_plugins_configuration_is_given_back(host: Path) -> None:
    path = caches(host, entry({"cniVersion": "0.3.1", "name": "cbr0", "type": "railnet", "primary": PRIMARY}))

    assert needed_by(host) == []
    assert configuration(path) == FLANNEL


@pytest.mark.parametrize("netns", [NETNS, None], ids=["living", "unknown"])
def test_remembered_configuration_is_given_back_unless_the_namespace_is_gone(host: Path, netns: str | None) -> None:
    path = caches(host, entry(netns=netns))

    needed_by(host)

    assert configuration(path) == FLANNEL


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
def test_other_cache_entries_do_not_count_and_stay(host: Path, content: object) -> None:
    path = caches(host, content)
    before = path.read_bytes()

    assert needed_by(host) == []
    assert path.read_bytes() == before


BROKEN = {
    "absent": (None, "No such file"),
    "broken": ("{", "is not JSON"),
    "another network": (json.dumps({**FLANNEL, "name": "other"}), "is network 'other'"),
    "Railnet's": (json.dumps(OURS), "names Railnet itself"),
}


@pytest.mark.parametrize(("primary", "why"), BROKEN.values(), ids=BROKEN.keys())
def test_plain_pod_is_waited_for_by_name_if_the_primary_cannot_take_it_down(
    host: Path, primary: str | None, why: str
) -> None:
    file = host / PRIMARY.lstrip("/")
    file.unlink() if primary is None else file.write_text(primary)
    path = caches(host, entry(cniArgs=CNI_ARGS))

    (needed,) = needed_by(host)

    assert needed.startswith("pod team/web-0: its DEL cannot be made the primary network's: ")
    assert why in needed
    assert configuration(path) == OURS


def test_configuration_without_a_primary_is_named(host: Path) -> None:
    caches(host, entry({**OURS, "plugins": [{"type": "railnet"}]}, cniArgs=CNI_ARGS))

    (needed,) = needed_by(host)

    assert "'primary': None" in needed


def record(host: Path, key: str = "abc@eth0") -> Path:
    """Write the record of pod team/train-0 into the journal."""
    container_id, _, ifname = key.partition("@")
    path = host / f"run/railnet/journal/{key}.json"
    path.write_bytes(
        encode(
            replace(a_record(), container_id=container_id, ifname=ifname, pod=SandboxPod("team", "train-0", "uid-2"))
        )
    )
    return path


def test_pod_with_a_rail_is_waited_for_by_name_and_keeps_its_configuration(host: Path) -> None:
    path = caches(host, entry(cniArgs=CNI_ARGS))
    record(host)
    (host / "run/railnet/journal/.temporary").write_text("")

    assert needed_by(host) == ["pod team/train-0 has a rail"]
    assert configuration(path) == OURS


def test_prepared_claim_is_waited_for_since_kubelet_needs_the_driver_to_end_its_pods(host: Path) -> None:
    (host / "run/railnet/claims").mkdir()
    (host / "run/railnet/claims/a1b2.json").write_text("{}")

    assert needed_by(host) == ["a claim with the UID a1b2 is prepared"]


def test_sandbox_of_a_record_without_a_pods_name_is_named(host: Path) -> None:
    (host / "run/railnet/journal/abc@eth0.json").write_text("{}")

    assert needed_by(host) == ["sandbox abc@eth0 has a rail"]


def test_request_is_named_by_its_command_and_its_pod(host: Path) -> None:
    process = runs(host)
    (process / "environ").write_bytes(
        b"CNI_COMMAND=DEL\0CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=team;K8S_POD_NAME=web-0\0"
    )

    assert needed_by(host) == ["request DEL of pod team/web-0 (process 4711)"]


def test_runtime_is_given_back_to_the_primary_at_once(host: Path) -> None:
    folder = host / FOLDER.lstrip("/")
    (folder / f"{NAME}.cilium_bak").write_text("")

    Leaving(host_at(host)).deactivate()

    assert [path.name for path in folder.iterdir()] == ["10-flannel.conflist"]


def test_deactivation_without_a_conflist_succeeds(host: Path, tmp_path: Path) -> None:
    Leaving(host_at(host)).deactivate()
    Leaving(host_at(host)).deactivate()
    Leaving(host_at(tmp_path / "nothing")).deactivate()


def runs(host: Path) -> Path:
    """Have a request in flight on the host, as its /proc shows it; gives its folder."""
    process = host / "proc/4711"
    process.mkdir()
    (process / "cmdline").write_bytes(b"/usr/bin/python3\0-ISE\0/opt/cni/bin/railnet\0")
    (process / "environ").write_bytes(b"CNI_COMMAND=DEL\0")
    (process / "status").write_bytes(b"NSpid:\t4711\n")
    return process


@pytest.mark.parametrize("by", ["a pod with a rail", "a request"])
@pytest.mark.slow
def test_executable_stays_until_nothing_needs_it(host: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(uninstall_module, "_LOOK_SECONDS", 0.01)
    leaving = Leaving(host_at(host))
    needs_it = record(host) if by == "a pod with a rail" else runs(host)

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


@pytest.mark.slow
def test_claims_of_kubelets_file_are_waited_for_also_without_a_record(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reboot no claim has a record. A claim that came later has no driver that could unprepare it."""
    monkeypatch.setattr(uninstall_module, "_LOOK_SECONDS", 0)
    first, later = (dra_manager_state.parse(a_state(a_claim(uid, ClaimName=uid)), DRIVER) for uid in ("a1", "b2"))
    looks: list[tuple[dra_manager_state.PreparedDevices, ...] | Exception] = [
        ValueError("not understood"),
        first,
        OSError("no disk"),
        (*later, *first),
        later,
    ]
    told = list[str | None]()

    async def claims() -> tuple[dra_manager_state.PreparedDevices, ...]:
        told.append(leaving.trouble)
        look = looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look

    leaving = Leaving(host_at(host), claims)
    needs_it = record(host)

    async def scenario() -> None:
        serving = asyncio.create_task(leaving.serve(lambda: None))
        async with asyncio.timeout(10):
            while not told[2:]:  # noqa: ASYNC110 - no event reports a look
                await asyncio.sleep(0)
            needs_it.unlink(missing_ok=True)
            await serving

    asyncio.run(scenario())

    assert (looks, leaving.done) == ([], True)
    assert "claim ml/a1 is prepared" in str(told[2])
    assert "claim ml/a1 is prepared" in str(told[4])
    assert "b2" not in "".join(map(str, told))


def test_state_of_the_daemon_is_removed(host: Path) -> None:
    (host / "var/lib/railnet").mkdir(parents=True)
    (host / "var/lib/railnet/rails.json").write_text("{}")

    Leaving(host_at(host)).forget()

    assert not (host / "run/railnet").exists()
    assert not (host / "var/lib/railnet").exists()


def test_add_that_the_runtime_wrote_down_after_the_last_look_is_given_back(host: Path) -> None:
    leaving, path = Leaving(host_at(host)), host / "var/lib/cni/results/cbr0-abc-eth0"

    def finish(root: Path, seconds: float) -> frozenset[int]:
        caches(host, entry())
        return frozenset()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uninstall_module.running_plugins, "await_end", finish)
        leaving._remove()

    assert configuration(path) == FLANNEL


# Plugins of other programs.


FLANNEL_FILE = "10-flannel.conflist"
ISTIO = {"type": "istio-cni", "name": "istio-cni"}


def conflist(host: Path, name: str, content: object) -> Path:
    path = host / FOLDER.lstrip("/") / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def own(*plugins: object, **keys: object) -> dict[str, Any]:
    return {**OURS, "plugins": [{"type": "railnet", "primary": PRIMARY, **keys}, *plugins]}


def types(path: Path) -> list[str]:
    return [plugin["type"] for plugin in json.loads(path.read_bytes())["plugins"]]


def test_plugin_that_railnets_conflist_alone_has_goes_to_the_primarys(host: Path) -> None:
    primary = conflist(host, FLANNEL_FILE, FLANNEL)
    primary.chmod(0o644)
    ours = conflist(host, NAME, own(ISTIO, {"type": "tuning"}))

    Leaving(host_at(host)).deactivate()

    assert not ours.exists()
    assert json.loads(primary.read_bytes()) == {**FLANNEL, "plugins": [{"type": "flannel"}, ISTIO, {"type": "tuning"}]}
    assert primary.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("copies", [{"istio-cni": ISTIO}, {}])
def test_plugin_that_the_primary_has_stays_there_once(host: Path, copies: dict[str, object]) -> None:
    primary = conflist(host, FLANNEL_FILE, {**FLANNEL, "plugins": [{"type": "flannel"}, ISTIO]})
    before = primary.stat().st_ino
    conflist(host, NAME, own(ISTIO, omit=["istio-cni"], copies=copies))

    Leaving(host_at(host)).deactivate()

    assert primary.stat().st_ino == before


def test_plugin_that_its_installer_took_out_of_railnets_conflist_goes_from_the_primarys(host: Path) -> None:
    primary = conflist(host, FLANNEL_FILE, {**FLANNEL, "plugins": [{"type": "flannel"}, ISTIO]})
    conflist(host, NAME, own(omit=["istio-cni"]))

    Leaving(host_at(host)).deactivate()

    assert types(primary) == ["flannel"]


def test_copy_of_railnets_conflist_calls_the_primarys_plugins(host: Path) -> None:
    conflist(host, FLANNEL_FILE, {**FLANNEL, "plugins": [{"type": "flannel"}, ISTIO, {"type": "portmap"}]})
    conflist(host, NAME, own(ISTIO))
    copy = conflist(host, "02-istio-cni.conflist", own(ISTIO))

    Leaving(host_at(host)).deactivate()

    assert types(copy) == ["flannel", "portmap", "istio-cni"]


@pytest.mark.parametrize("primary", ['{"cniVersion": "0.3.1", "name": "cbr0", "type": "bridge"}', "{", ""])
def test_primary_that_cannot_take_a_plugin_is_said_and_left(
    host: Path, primary: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = conflist(host, FLANNEL_FILE, primary)
    ours = conflist(host, NAME, own(ISTIO))

    Leaving(host_at(host)).deactivate()

    assert (ours.exists(), path.read_text()) == (False, primary)
    assert "(istio-cni) are not in the primary's" in caplog.text


def test_remembered_configuration_keeps_the_plugins_of_others(host: Path) -> None:
    path = caches(host, entry(own(ISTIO), cniArgs=CNI_ARGS))

    assert needed_by(host) == []
    assert configuration(path)["plugins"] == [{"type": "flannel"}, ISTIO]
