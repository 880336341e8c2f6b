"""Times as the API writes them: RFC 3339, UTC, whole seconds (microseconds in Lease and Event times)."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


def stamp(when: datetime | None = None) -> str:
    """Return a `metav1.Time`: whole seconds.

    >>> stamp(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02T03:04:05Z'
    """
    return (when or now()).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_stamp(when: datetime) -> str:
    """Return a `metav1.MicroTime`."""
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> datetime:
    """Return the time that an RFC 3339 text names.

    Raises:
        ValueError: for any other text.
    """
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone")
    return found


def age_s(text: str | None) -> float | None:
    """Return the seconds since a stored time, or None where there is none."""
    if not text:
        return None
    return (now() - parse(text)).total_seconds()


def human_duration(seconds: float) -> str:
    """Return a duration as kubectl prints ages.

    Source: `k8s.io/apimachinery/pkg/util/duration.HumanDuration`.

    >>> [human_duration(s) for s in (7, 200, 4000, 90000, 1e6)]
    ['7s', '3m20s', '66m', '25h', '11d']
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _pair(days // 365, "y", days % 365, "d") if days < 2920 else f"{days // 365}y"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
