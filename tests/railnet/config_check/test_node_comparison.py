"""What a configuration would mean on a node: its cards and its folder of plugins."""

from pathlib import Path

import pytest

from railnet.config_check.node_comparison import compare, plugins, remarks
from railnet.configuration import Configuration, HostConfiguration, parse
from railnet.value_readers import Fault
from railnet.vf.inventory import Inventory
from tests.deviceplugin.builders import a_pf
from tests.railnet.kernel.tree import PF, Tree

NODE = Inventory((a_pf(), a_pf(address="0000:83:00.0", numa_node=1)))


def said(text: str, node: Inventory = NODE) -> list[tuple[str, str, str]]:
    configuration = parse(text, "node.yaml")
    node = Inventory(node.pfs, rail_select=configuration.rail_select)
    return [(remark.level, remark.key, remark.message) for remark in remarks(configuration, node)]


def test_each_entry_says_what_it_matches() -> None:
    text = """
    rails: {select: {numaNode: [1]}}
    provision:
    - {select: {numaNode: [1]}, vfs: 8}
    - {select: {pfDevice: ["1017"]}, vfs: 4}
    - {pf: "0000:03:00.0", vfs: 4}
    """

    assert said(text) == [
        ("note", "provision[0]", "provision[0] matches 0000:83:00.0 (15b3:1021, infiniband, NUMA node 1) on this node"),
        ("note", "provision[1]", "provision[1] matches no PF on this node"),
        ("note", "provision[2]", "provision[2] matches 0000:03:00.0 (15b3:1021, infiniband, NUMA node 0) on this node"),
        ("note", "rails", "rails matches 0000:83:00.0 (15b3:1021, infiniband, NUMA node 1) on this node"),
    ]


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        (
            "provision: [{select: {}, vfs: 8}, {select: {numaNode: [1]}, vfs: 4}]",
            "provision",
            "is matched by provision[0]",
        ),
        ("provision: [{select: {numaNode: [7]}, vfs: 8}]", "provision", "no entry of `provision` in node.yaml matches"),
        ("rails: {select: {numaNode: [7]}}", "rails", "`rails.select` in node.yaml matches no PF of this node"),
    ],
)
def test_entry_that_cannot_be_right_on_this_node_is_an_error(text: str, key: str, words: str) -> None:
    ((_, found, message),) = [remark for remark in said(text) if remark[0] == "error"]

    assert found == key
    assert words in message


def test_plugins_are_the_files_of_the_folder_on_the_host(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/host-local").touch()
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/bin").symlink_to("/real")  # followed as on the host

    assert plugins(Configuration(HostConfiguration(root=tmp_path, cni_bin=Path("/opt/bin")))) == {"host-local"}


@pytest.mark.parametrize("kind", ["absent", "a file"])
def test_folder_of_plugins_that_is_none_is_a_fault_of_its_key(tmp_path: Path, kind: str) -> None:
    if kind == "a file":
        (tmp_path / "bin").touch()

    with pytest.raises(Fault, match="the folder of CNI plugins /bin cannot be read") as raised:
        plugins(Configuration(HostConfiguration(root=tmp_path, cni_bin=Path("/bin"))))

    assert raised.value.path == "host.cniBin"


def test_cards_are_read_from_the_sysfs_of_the_file(tmp_path: Path) -> None:
    Tree(tmp_path).whole()
    configuration = parse(f"host: {{sysfs: {tmp_path}}}\nprovision: [{{select: {{}}, vfs: 3}}]", "node.yaml")

    ((level, _, key, message),) = compare(configuration)

    assert (level, key) == ("note", "provision[0]")
    assert message.startswith(f"provision[0] matches {PF} (15b3:")
