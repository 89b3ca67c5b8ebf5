"""Command lines of `railnet validate` that are refused before a cluster is asked."""

from pathlib import Path

import pytest

from railnet.__main__ import main


def refused(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["railnet", "validate", "--kubeconfig", "/absent", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    assert isinstance(code, int)
    return code, capsys.readouterr().err


def test_mode_that_does_not_exist_is_refused_with_the_modes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(["--mode", "fast"], monkeypatch, capsys)

    assert code == 2
    assert "quick" in said.splitlines()[-1]
    assert "strict" in said.splitlines()[-1]


@pytest.mark.parametrize("option", [["--gpudirect"], ["--least-rdma-gbits", "0"], ["--most-rdma-microseconds", "2"]])
def test_option_for_rdma_in_a_mode_without_rdma_is_refused(
    option: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(["--mode", "quick", *option], monkeypatch, capsys)

    assert (code, f"--mode quick tries no RDMA, so {option[0]} would say nothing" in said) == (2, True)


def test_baseline_that_is_no_report_is_refused_before_the_cluster_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "last.json").write_text("[]")
    code, said = refused(["--baseline", str(tmp_path / "last.json")], monkeypatch, capsys)

    assert (code, "last.json is no report of this `railnet validate -o json`" in said) == (3, True)


def test_report_of_rails_is_for_a_pod(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["railnet", "doctor", "--cluster", "--validated", "fabric.json"])
    with pytest.raises(SystemExit) as ended:
        main()

    assert (ended.value.code, "give --pod NAME with it" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize("option", [["--allreduce-gpu"], ["--least-busbw-gbits", "40"]])
def test_option_for_an_all_reduce_without_one_is_refused(
    option: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(option, monkeypatch, capsys)

    assert (code, f"without --allreduce, {option[0]} would say nothing" in said) == (2, True)


def test_all_reduce_on_idle_nodes_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(["--idle", "--allreduce", "train:7"], monkeypatch, capsys)

    assert (code, "so --allreduce would say nothing; leave out one of the two" in said) == (2, True)


def test_other_resources_of_nodes_that_need_not_be_idle_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(["--other-resource", "rdma/rail1"], monkeypatch, capsys)

    assert (code, "without --idle, --other-resource would say nothing" in said) == (2, True)
