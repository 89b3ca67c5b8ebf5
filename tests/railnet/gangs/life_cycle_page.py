"""The tables of a gang's life in `docs/architecture.md`: `scripts/setup python -m tests.railnet.gangs.life_cycle_page` writes them."""

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from railnet.gangs.life_cycle import LIFE_CYCLE, GangAction, GangEvent, GangState
from tests.railnet.jobs.pages import BEGIN, END, table

PAGE = Path(__file__).resolve().parents[3] / "docs/architecture.md"


def tables() -> str:
    states = table(["state", ""], ((f"`{state.name}`", state.value) for state in GangState))
    events = table(["event", "", "what is done"], ((f"`{event.name}`", event.value, of(event)) for event in GangEvent))
    actions = table(["what is done", ""], ((f"`{action.name}`", action.value) for action in GangAction))
    return f"{states}\n{events}\n{actions}"


def of(event: GangEvent) -> str:
    """Return the rows of an event; those of several states that do the same are together."""
    states = defaultdict(list)
    for state in GangState:
        if (rule := LIFE_CYCLE.get((state, event))) is not None:
            states[rule.action, None if rule.then is state else rule.then].append(state)
    return "; ".join(
        f"{of_states(group)}: `{action.name}`{'' if follows is None else f' → {follows.name}'}"
        for (action, follows), group in states.items()
    )


def of_states(group: Collection[GangState]) -> str:
    others = [state.name for state in GangState if state not in group]
    if len(others) > 1:
        return ", ".join(state.name for state in group)
    return f"all but {others[0]}" if others else "all"


def with_tables(page: str) -> str:
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{tables()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
