import pytest

from railnet.objects.times import moment


def test_time_is_read_in_seconds() -> None:
    assert moment("1970-01-01T00:01:00Z") == 60.0


@pytest.mark.parametrize("text", [None, "", "yesterday", 5, [], "0001-01-01T00:00:00"])
def test_what_is_no_time_is_none(text: object) -> None:
    assert moment(text) is None
