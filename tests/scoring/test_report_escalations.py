"""How many answers of a cascade were escalated, and what it has saved."""

from __future__ import annotations

import pytest

from rubric_integrations.scoring import Escalations
from rubric_integrations.scoring.report import NO_ESCALATIONS

ONE = Escalations(judgments=4, escalated=1, requested=4, cost=0.6, strong_answers=1, strong_cost=0.5)


def test_saving_is_the_cost_of_the_expensive_judge_alone_less_what_was_paid() -> None:
    assert ONE.saved == pytest.approx(4 * 0.5 - 0.6)
    assert (ONE + ONE).saved == pytest.approx(2 * (4 * 0.5 - 0.6))
    assert (ONE + NO_ESCALATIONS) == ONE


@pytest.mark.parametrize("change", [{"cost": None}, {"strong_cost": None}, {"strong_answers": 0}])
def test_saving_is_none_where_it_is_not_known(change: dict[str, float | None]) -> None:
    other = ONE.model_copy(update=change)
    assert other.saved is None
    assert other.summary() == "25% escalated"


def test_cascade_that_escalates_all_has_lost_what_its_cheap_judge_cost() -> None:
    all_of_four = Escalations(judgments=4, escalated=4, requested=4, cost=2.4, strong_answers=4, strong_cost=2.0)
    assert all_of_four.saved == pytest.approx(-0.4)
    assert all_of_four.summary() == "100% escalated, about $0.4000 lost"


def test_without_a_cascade_there_is_no_share() -> None:
    assert (NO_ESCALATIONS.share, NO_ESCALATIONS.summary()) == (None, "")
