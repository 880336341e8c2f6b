"""Words of what people read, for every command and page alike."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 10  # stages of a cycle that a message names: all of them can be more than a status or an Event takes


def counted(number: int, word: str) -> str:
    """Return how many there are of something.

    >>> counted(1, "job"), counted(2, "job")
    ('1 job', '2 jobs')
    """
    return f"{number} {plural(number, word)}"


def plural(number: int, word: str) -> str:
    """Return a word as it is said after a number, for numbers that are written in a form of their own."""
    return word if number == 1 else f"{word}s"


def amount(number: float, digits: int) -> str:
    """Return a number with so many digits, or as many as it has before the point: 86,400 rather than 8.64e+04.

    >>> amount(221.283, 4), amount(20570.4, 4), amount(9999.96, 4), amount(0.5, 4)
    ('221.3', '20,570', '10,000', '0.5')
    """
    short = f"{number:,.{digits}g}"
    return f"{number:,.0f}" if "e+" in short else short


def printable(text: str) -> str:
    r"""Return a text that others wrote as one line that a terminal only shows: what would act there, in its code.

    >>> printable("done\x1b[2J\nW forged: café"), printable("\u202ecod")
    ('done\\x1b[2J\\nW forged: café', '\\u202ecod')
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def cycle(stages: Sequence[str]) -> str:
    """Return the stages of a cycle, from parent to child, the first one again at the end; of a long one the first ten.

    >>> cycle(["a", "b", "a"])
    'a -> b -> a'
    """
    more = len(stages) - 1 - _NAMED
    return " -> ".join(stages) if more <= 0 else f"{' -> '.join(stages[:_NAMED])} and {more} more"
