"""The introduction at the start of a connection: 24 bytes, and nothing that they may hold does harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.runtime.transport.hello import SIZE, Hello, HelloError, decode_hello, encode_hello, group_tag


@given(group=st.integers(0, (1 << 64) - 1), process=st.integers(0, 1 << 62))
def test_what_one_end_says_the_other_understands(group: int, process: int) -> None:
    said = encode_hello(Hello(group, process))
    assert len(said) == SIZE
    assert decode_hello(said) == Hello(group, process)


@given(st.binary(min_size=SIZE, max_size=SIZE))
def test_other_bytes_are_refused_and_never_crash(data: bytes) -> None:
    try:
        hello = decode_hello(data)
    except HelloError:
        return
    assert encode_hello(hello) == data


@pytest.mark.parametrize(
    ("position", "byte"),
    [(0, b"X"), (4, b"\x02"), (6, b"\x01"), (16, b"\xff")],
    ids=["magic", "version", "padding", "process"],
)
def test_every_field_is_checked(position: int, byte: bytes) -> None:
    said = encode_hello(Hello(1, 2))
    with pytest.raises(HelloError):
        decode_hello(said[:position] + byte + said[position + 1 :])


def test_groups_of_different_names_have_different_tags() -> None:
    assert group_tag("run-1/madrid") != group_tag("run-2/madrid")
    assert group_tag("run-1/madrid") == group_tag("run-1/madrid")
