"""CNI folders that were configured before: which are recorded, and what becomes of Railnet's files in them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from railnet.configuration import HostConfiguration
from railnet.install import cni_folders_record, former_folders, running_plugins
from railnet.install.cni_folders_record import CniFolders, add, parse, recorded

USUAL = CniFolders("/etc/cni/net.d", "/opt/cni/bin")
K3S = CniFolders("/k3s/net.d", "/k3s/bin")
OURS = {
    "cniVersion": "1.0.0",
    "name": "cbr0",
    "plugins": [{"type": "railnet", "primary": "/etc/cni/net.d/10.conflist"}],
}
PRIMARY = {"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "bridge"}]}


def host_at(root: Path, folders: CniFolders = K3S) -> HostConfiguration:
    return replace(HostConfiguration(), root=root, cni_conf=Path(folders.conf), cni_bin=Path(folders.bin))


def put(root: Path, folders: CniFolders) -> None:
    """Have Railnet in these folders of a host."""
    conf, plugins = (root / path.lstrip("/") for path in folders)
    conf.mkdir(parents=True)
    (conf / "10.conflist").write_text(json.dumps(PRIMARY))
    (conf / "00-railnet.conflist").write_text(json.dumps(OURS))
    (plugins / ".railnet/1.0").mkdir(parents=True)
    (plugins / "railnet").touch()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host on which no request runs."""
    monkeypatch.setattr(running_plugins, "await_end", lambda root, seconds: frozenset())
    return tmp_path


def test_usual_folders_need_no_record(host: Path) -> None:
    add(USUAL, host)

    assert recorded(host) == (USUAL,)
    assert list(host.iterdir()) == []


def test_other_folders_are_recorded_once_in_their_order(host: Path) -> None:
    other = CniFolders("/a", "/b")
    for folders in (K3S, other, K3S, USUAL):
        add(folders, host)

    assert recorded(host) == (USUAL, K3S, other)


@pytest.mark.parametrize("content", ["", "{", "7", "[1]", "[{}]", '[{"conf": "a", "bin": "/b"}]', '[{"conf": "/a"}]'])
def test_broken_record_names_no_folders_and_is_replaced(host: Path, content: str) -> None:
    file = host / cni_folders_record.FILE.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_text(content)
    with pytest.raises(ValueError, match=r"cni_folders\.json|Expecting"):
        parse(content.encode())

    before = recorded(host)
    add(K3S, host)

    assert (before, recorded(host)) == ((USUAL,), (USUAL, K3S))


def test_files_in_the_usual_folders_go_and_those_of_the_configured_ones_stay(host: Path) -> None:
    put(host, USUAL)
    put(host, K3S)

    left = former_folders.leave(host_at(host), [K3S.bin])

    assert left
    assert sorted(path.name for path in (host / "etc/cni/net.d").iterdir()) == ["10.conflist"]
    assert list((host / "opt/cni/bin").iterdir()) == []
    assert (host / "k3s/net.d/00-railnet.conflist").exists()
    assert (host / "k3s/bin/railnet").exists()


def test_files_in_recorded_folders_go(host: Path) -> None:
    add(K3S, host)
    put(host, K3S)

    former_folders.leave(host_at(host, USUAL), [USUAL.bin])

    assert [path.name for path in (host / "k3s/net.d").iterdir()] == ["10.conflist"]
    assert list((host / "k3s/bin").iterdir()) == []


def test_executable_stays_while_a_request_runs_and_goes_later(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(host, USUAL)
    with monkeypatch.context() as patch:
        patch.setattr(running_plugins, "await_end", lambda root, seconds: frozenset({7}))
        first = former_folders.leave(host_at(host), [K3S.bin]), (host / "opt/cni/bin/railnet").exists()

    second = former_folders.leave(host_at(host), [K3S.bin]), (host / "opt/cni/bin/railnet").exists()

    assert (first, second) == ((False, True), (True, False))


@pytest.mark.parametrize("kind", ["conf", "bin"])
def test_folder_that_is_shared_with_the_configured_ones_stays(host: Path, kind: str) -> None:
    put(host, USUAL)

    former_folders.leave(host_at(host, USUAL._replace(**{kind: "/other"})), [USUAL.bin, "/other"])

    kept = (host / "etc/cni/net.d/00-railnet.conflist").exists(), (host / "opt/cni/bin/railnet").exists()
    assert kept == ((False, True) if kind == "conf" else (True, False))


def test_usual_folder_that_leads_to_the_configured_one_keeps_its_files(host: Path) -> None:
    put(host, K3S)
    (host / "etc/cni").mkdir(parents=True)
    (host / "opt/cni").mkdir(parents=True)
    (host / "etc/cni/net.d").symlink_to("/k3s/net.d")
    (host / "opt/cni/bin").symlink_to("/k3s/bin")

    former_folders.leave(host_at(host), [K3S.bin])

    assert (host / "k3s/net.d/00-railnet.conflist").exists()
    assert (host / "k3s/bin/railnet").exists()


def test_host_without_other_folders_is_left_alone(host: Path) -> None:
    put(host, K3S)

    assert former_folders.leave(host_at(host), [K3S.bin])


@pytest.mark.parametrize("searched", [[], [USUAL.bin], ["/elsewhere"]], ids=repr)
def test_nothing_goes_while_the_runtime_was_not_seen_to_look_in_the_configured_folder(
    host: Path, searched: list[str]
) -> None:
    put(host, USUAL)
    put(host, K3S)

    left = former_folders.leave(host_at(host), searched)

    assert not left
    assert (host / "etc/cni/net.d/00-railnet.conflist").exists()
    assert (host / "opt/cni/bin/railnet").exists()


@pytest.mark.parametrize("searched", ["/k3s/bin/", "/k3s/../k3s/bin", "/link/bin"])
def test_runtime_may_name_the_configured_folder_in_another_way(host: Path, searched: str) -> None:
    put(host, USUAL)
    put(host, K3S)
    (host / "link").symlink_to("/k3s")

    assert former_folders.leave(host_at(host), ["/elsewhere", searched])
    assert not (host / "opt/cni/bin/railnet").exists()
