"""The forms of names, label keys and label values, and what Kubernetes says of a text that has another form.

Each function returns what is wrong with a text, or nothing. Knows no object.

Source: `k8s.io/apimachinery/pkg/util/validation/validation.go`.
"""

from __future__ import annotations

import re

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"
_ENDS = "and must start and end with an alphanumeric character"
_LONGEST_SUBDOMAIN, _LONGEST_LABEL = 253, 63


def _told(form: str, examples: str, pattern: str) -> str:
    return f"{form} (e.g. {examples}, regex used for validation is '{pattern}')"


def _wrong(text: str, most: int, unit: str, pattern: str, told: str) -> str:
    """Judge a text by its length, then by its form."""
    if len(text) > most:
        return f"must be no more than {most} {unit}"
    return "" if re.fullmatch(pattern, text) else told


_SUBDOMAIN_FORM = _told(
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}",
    "'example.com'",
    _SUBDOMAIN,
)
_LABEL_FORM = _told(
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}",
    "'my-name',  or '123-abc'",
    _LABEL,
)
_VALUE_FORM = _told(
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS}",
    "'MyValue',  or 'my_value',  or '12345'",
    _VALUE,
)
_KEY_FORM = _told(
    f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}",
    "'MyName',  or 'my.name',  or '123-abc'",
    _QUALIFIED,
)


def wrong_subdomain(text: str) -> str:
    """Judge a name as most objects have: a DNS subdomain."""
    return _wrong(text, _LONGEST_SUBDOMAIN, "characters", _SUBDOMAIN, _SUBDOMAIN_FORM)


def wrong_label(text: str) -> str:
    """Judge a name as namespaces have: one label of a DNS name."""
    if "." in text:
        return "must not contain dots"
    return _wrong(text, _LONGEST_LABEL, "characters", _LABEL, _LABEL_FORM)


def wrong_segment(text: str) -> str:
    """Judge a name as roles have: whatever is one segment of a path."""
    if text in (".", ".."):
        return f"may not be '{text}'"
    return next((f"may not contain '{mark}'" for mark in "/%" if mark in text), "")


def wrong_key(text: str) -> str:
    """Judge the key of a label or an annotation: a name, or a DNS subdomain, a slash and a name."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return (
            f"a valid label key {_KEY_FORM} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
    if slash and (wrong := wrong_subdomain(prefix) if prefix else "must be non-empty"):
        return f"prefix part {wrong}"
    if not name:
        return "name part must be non-empty"
    wrong = _wrong(name, _LONGEST_LABEL, "bytes", _QUALIFIED, _KEY_FORM)
    return f"name part {wrong}" if wrong else ""


def wrong_value(text: str) -> str:
    """Judge the value of a label."""
    return _wrong(text, _LONGEST_LABEL, "bytes", _VALUE, _VALUE_FORM)
