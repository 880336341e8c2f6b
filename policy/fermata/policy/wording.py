"""Words of what people read, for every command and page alike."""

from __future__ import annotations


def counted(number: int, word: str) -> str:
    """Return how many there are of something.

    >>> counted(1, "job"), counted(2, "job")
    ('1 job', '2 jobs')
    """
    return f"{number} {plural(number, word)}"


def plural(number: int, word: str) -> str:
    """Return a word as it is said after a number, for numbers that are written in a form of their own."""
    return word if number == 1 else f"{word}s"
