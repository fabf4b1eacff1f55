"""Who asks for something large waits as long as an answer takes, and asks again for ever."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from isthmus.ordering.group.patience import LONGEST, Answers, Patience

LEAST = 10


def test_questions_in_vain_become_rare_and_never_stop() -> None:
    patience = Patience(LEAST)
    asked = []
    for now in range(50 * LEAST):
        if patience.is_over(now):
            patience.asked(now)
            asked.append(now)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses[:5] == [LEAST, 2 * LEAST, 4 * LEAST, 8 * LEAST, LONGEST * LEAST]
    assert set(pauses[5:]) == {LONGEST * LEAST}


def test_one_answer_to_one_question_says_how_long_to_wait() -> None:
    patience = Patience(LEAST)
    patience.asked(0)
    patience.answered(30)
    patience.asked(100)
    assert not patience.is_over(159)
    assert patience.is_over(160)


def test_of_two_questions_nobody_knows_which_was_answered() -> None:
    patience = Patience(LEAST)
    for now in (0, LEAST):
        patience.asked(now)
    patience.answered(LEAST + 1)
    patience.asked(100)
    assert not patience.is_over(100 + LEAST - 1)
    assert patience.is_over(100 + LEAST)


@given(st.integers(1, 3 * LONGEST * LEAST))
def test_few_answers_to_one_question_are_on_a_line_however_long_it_is(way: int) -> None:
    """Every question is answered after `way`. What comes a second time shows that it was asked too soon."""
    patience = Patience(LEAST)
    answers: list[int] = []
    taken = late = 0
    for now in range(40 * way):
        while answers and answers[0] <= now:
            answers.pop(0)
            if patience.tries:
                patience.answered(now)
                taken += 1
            else:
                patience.answered_twice()
                late += 1
        if patience.is_over(now):
            patience.asked(now)
            answers.append(now + way)
            assert len(answers) <= 8
    assert taken + late >= 20


# Who answers


def test_an_answer_is_given_again_only_to_who_has_heard_of_us_since() -> None:
    answers = Answers(LEAST)
    assert answers.is_due("a part", 0, 0)
    answers.give("a part", 5, 0)
    assert not answers.is_due("a part", 4, 1), "it may be on its way"
    assert answers.is_due("another part", 4, 1)
    assert answers.is_due("a part", 5, 1), "it is lost: a heartbeat has come that left after it"


def test_an_answer_is_given_again_after_a_while_to_who_hears_no_heartbeats() -> None:
    answers = Answers(LEAST)
    given = []
    for now in range(50 * LEAST):
        if answers.is_due("a part", 0, now):
            answers.give("a part", len(given) + 1, now)
            given.append(now)
    pauses = [later - earlier for earlier, later in pairwise(given)]
    assert pauses[:5] == [LEAST, 2 * LEAST, 4 * LEAST, 8 * LEAST, LONGEST * LEAST]
    assert set(pauses[5:]) == {LONGEST * LEAST}
