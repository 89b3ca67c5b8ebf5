"""Command lines of `railnet validate` that are refused before a cluster is asked."""

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
