"""Instants as texts, and what is made of a stamp that was cut to the second."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.objects import T0

from fermata.operator.times import parse, parse_or_none, refine, render, render_or_none

FIRST, LAST = "0001-01-01T00:00:00.000000Z", "9998-12-31T23:59:59.999900Z"
FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.mark.parametrize("text", [FIRST, "0999-12-31T23:59:59.000000Z", "1970-01-01T00:00:00.000001Z"])
def test_what_can_be_read_can_be_written_again(text: str) -> None:
    assert render(parse(text)) == text


@given(st.floats(parse(FIRST), parse(LAST)))
def test_what_is_written_is_a_time_to_an_api_server_and_reads_back(seconds: float) -> None:
    assert FORM.fullmatch(render(seconds))
    assert parse(render(seconds)) == pytest.approx(seconds, rel=0.0, abs=2e-5)


def test_a_time_without_a_zone_is_one_of_utc() -> None:
    assert parse("2027-01-15T08:00:00") == parse("2027-01-15T09:00:00+01:00") == T0


@pytest.mark.parametrize("text", [None, "", "soon", "0001-01-01T00:00:00+14:00", "9999-01-01T00:00:00Z"])
def test_what_is_no_time_is_none(text: str | None) -> None:
    assert parse_or_none(text) is None
    assert render_or_none(parse_or_none(text)) is None


@pytest.mark.parametrize(
    ("stamp_s", "seen_s", "guess_s"),
    [
        (0.0, 0.0, 0.0),
        (0.0, 0.75, 0.75),
        (0.0, 1.125, 1.0),  # told with a delay: it was in that second
        (0.0, 1.25, 0.5),  # too late to say more than the stamp
        (0.0, -0.125, 0.5),  # a clock behind that of the API server
        (0.25, 0.5, 0.25),  # not cut
    ],
)
def test_a_stamp_cut_to_the_second_is_as_late_as_it_was_seen_within_that_second(
    stamp_s: float, seen_s: float, guess_s: float
) -> None:
    assert refine(T0 + stamp_s, T0 + seen_s) == T0 + guess_s
