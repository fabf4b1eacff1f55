"""Parser expressions mean here what they mean in ShiViz, and none of them can hang a reader."""

from __future__ import annotations

import signal
from threading import Thread

import pytest

from isthmus.trace.shiviz import expression as shiviz_expression
from isthmus.trace.shiviz.expression import (
    MAX_ENTRY,
    MAX_EXPRESSION,
    BadExpression,
    Expression,
    Patience,
    TooSlow,
)


def found(expression: str, text: str) -> list[str | int]:
    with Patience(20) as patience:
        matches = Expression(expression).matches(text, 0, len(text), patience)
        return [match if isinstance(match, int) else match.group() for match in matches]


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        (r"(?<a>\w+)-(?<b>\d+)", "x-1 y-22", ["x-1", "y-22"]),
        (r"(AM|PM)", "01:15 PM, 01:16 AM", ["PM", "AM"]),
        (r"{.*}", 'a {"b":1} c', ['{"b":1}']),
        (r"a{2}b{,3}", "aab{,3} aabbb", ["aab{,3}"]),
        (r"^b$", "a\nb\nc", ["b"]),
        (r"x[^]*?y", "x\n\ny", ["x\n\ny"]),
        (r"(.|\n)+?;", "a\nb;c;", ["a\nb;", "c;"]),
        (r"[]x|y", "xy", ["y"]),
        (r"[[\]&&~~-]+", "a[]&~-b", ["[]&~-"]),
        (r"[\w-]+", "é-b_1", ["-b_1"]),
        (r"[\d\-/]+", "28/07-14 x", ["28/07-14"]),
        (r"[\b]", "a\bb", ["\b"]),
        (r"\w+", "caféx", ["caf", "x"]),
        (r"\d", "1\u0661", ["1"]),
        (r"\W+", "a-é-b", ["-é-"]),
        (r"\D+", "1é\u06612", ["é\u0661"]),
        (r"\bb\b", "ab b éb", ["b", "b"]),
        (r"a\Bb", "a b ab", ["ab"]),
        (r"\Ab\Zc", "AbZc", ["AbZc"]),
        (r".+", "a\u2028b", ["a", "b"]),
        (r"\x41\u0042\cJ\t\/\.", "AB\n\t/.", ["AB\n\t/."]),
        (r"(?<=\$)\d+(?! )", "$12 $34", ["1", "34"]),
        (r"(?:a|b)+(?=c)", "abc ab", ["ab"]),
        (r"a# b", "a# b", ["a# b"]),
        (r"}]", "x}]", ["}]"]),
    ],
)
def test_an_expression_means_what_it_means_in_javascript(expression: str, text: str, expected: list[str | int]) -> None:
    assert found(expression, text) == expected


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("(?<a>x)(?<a>y)", "two groups are called 'a'"),
        ("(?P<a>x)", "'(?P<' is not known to JavaScript"),
        ("(?i)x", "'(?i)' is not known to JavaScript"),
        ("(?>x)", "'(?>x' is not known to JavaScript"),
        ("x++", "'+' behind '+' has nothing to repeat"),
        ("x{2}{3}", "'{' behind '{2}' has nothing to repeat"),
        (r"(x)\1", r"'\1' refers to another group"),
        (r"(?<a>x)\k<a>", r"'\k' refers to another group"),
        ("x*", "it matches the empty text"),
        ("(x", "not a regular expression"),
        ("x)", "not a regular expression"),
        ("*x", "not a regular expression"),
        ("[x", "a '[' has no ']'"),
        ("[z-a]", "the range z-a is out of order"),
        ("x\\", "it ends with a backslash"),
        ("x{99999999999}", ""),
        ("x{999999999}", ""),
        ("(" * 2000 + "x" + ")" * 2000, "not a regular expression"),
        ("x" * (MAX_EXPRESSION + 1), "longer than 4096 characters"),
    ],
    ids=lambda text: text[:20],
)
def test_what_cannot_be_meant_is_refused_in_words(expression: str, words: str) -> None:
    if words:
        with pytest.raises(BadExpression, match="^" + words.translate({ord(c): "\\" + c for c in "()?{}+[\\"})):
            Expression(expression)
    else:  # a count that Python may or may not take: no other exception
        try:
            Expression(expression)
        except BadExpression:
            pass


def test_the_groups_that_are_needed_have_to_be_there() -> None:
    assert Expression("(?<host>x)(y)(?<event>z)", ("host", "event")).names == ("host", "event")
    with pytest.raises(BadExpression, match=r"it has no group \(\?<clock>…\)"):
        Expression("(?<host>x)(?<event>z)", ("host", "clock", "event"))


@pytest.mark.parametrize(
    "expression", [r"(a+)+b", r"(a|aa)+b", r"(.*)*x", r"(a*a*)*b", r".*.*.*.*.*=b", r"((.|\n)*?)*b", r"(?=(a+)+b)c"]
)
def test_catastrophic_backtracking_ends(expression: str) -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    text = "a" * 5000
    with Patience(0.05) as patience:
        with pytest.raises(TooSlow):
            list(Expression(expression).matches(text, 0, len(text), patience))
        with pytest.raises(TooSlow):  # and it has none left
            list(Expression("b").matches("b", 0, 1, patience))
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_patience_is_refused_where_nothing_could_interrupt_a_search() -> None:
    refused: list[str] = []

    def elsewhere() -> None:
        try:
            Patience(1)
        except RuntimeError as error:
            refused.append(str(error))

    thread = Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert refused == ["searches can be interrupted in the main thread only"]


def test_what_is_longer_than_an_entry_may_be_is_reported_where_it_begins() -> None:
    long = "<" + "x" * MAX_ENTRY + ">"
    assert found(r"<[^>]*>", f"<a>\n{long}\n<b>") == ["<a>", 4, "<b>"]


def test_entries_are_found_across_and_far_behind_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shiviz_expression, "MAX_ENTRY", 8)
    monkeypatch.setattr(shiviz_expression, "WINDOW", 16)
    for gap in range(40):
        assert found(r"<\w*>$", "." * gap + "<abcde>\n" + "\n" * gap + "<f>") == ["<abcde>", "<f>"]
        assert found(r"\w+", "." * gap + "abcdefgh" + "." * gap) == ["abcdefgh"]
