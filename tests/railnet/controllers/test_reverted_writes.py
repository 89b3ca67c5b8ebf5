"""An object that is written again and again without having changed is left alone for a while."""

from railnet.controllers.reverted_writes import MOST_WRITES, WINDOW_SECONDS, RepeatedWrites


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def permitted(writes: RepeatedWrites[str], content: str, times: int, name: str = "a") -> int:
    """Do several writes of a content, as far as they are permitted, and return how many were."""
    done = 0
    for _ in range(times):
        if writes.permit("job", name, content):
            writes.wrote("job", name, content)
            done += 1
    return done


def test_same_content_is_written_some_times_and_then_left_out() -> None:
    writes: RepeatedWrites[str] = RepeatedWrites(Clock())

    assert permitted(writes, "x", 50) == MOST_WRITES
    assert writes.left_out == 50 - MOST_WRITES


def test_write_that_failed_does_not_count() -> None:
    """An API server that refuses ten writes must not cost the job its names."""
    writes: RepeatedWrites[str] = RepeatedWrites(Clock())

    assert all(writes.permit("job", "a", "x") for _ in range(100))


def test_each_new_content_is_written() -> None:
    writes: RepeatedWrites[str] = RepeatedWrites(Clock())

    assert sum(permitted(writes, f"{number}", 1) for number in range(1000)) == 1000
    assert writes.left_out == 0


def test_two_contents_in_turn_are_found() -> None:
    """Two parts that each want the object to be another one write it in each look."""
    writes: RepeatedWrites[str] = RepeatedWrites(Clock())

    assert sum(permitted(writes, content, 1) for _ in range(50) for content in "ab") == 2 * MOST_WRITES


def test_objects_and_owners_are_counted_apart() -> None:
    writes: RepeatedWrites[str] = RepeatedWrites(Clock())
    permitted(writes, "x", 50)

    assert permitted(writes, "x", 1, "b") == 1
    assert writes.permit("other", "a", "x")


def test_object_is_written_again_when_the_time_is_over() -> None:
    clock = Clock()
    writes: RepeatedWrites[str] = RepeatedWrites(clock)
    permitted(writes, "x", 50)
    clock.seconds = WINDOW_SECONDS

    assert permitted(writes, "x", 50) == MOST_WRITES


def test_object_that_is_not_to_be_there_any_more_is_forgotten() -> None:
    writes: RepeatedWrites[str] = RepeatedWrites(Clock())
    for forget in (
        lambda: writes.forget("job", "a"),
        lambda: writes.forget_owner("job"),
        lambda: writes.keep({"other"}),
    ):
        permitted(writes, "x", 50)
        forget()
        assert permitted(writes, "x", 1) == 1
