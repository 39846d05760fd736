"""How figures are written in reports, alike on all axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["DASH", "count", "dated", "ends", "interval", "number", "slug"]

DASH = "-"
_MILLION = 1e6


def interval(figure: Mapping[str, Any] | None, form: str = ".1f") -> str:
    """Value and interval: `61.3 [58.9, 63.6]`; a dash where nothing was measured."""
    if figure is None or figure.get("value") is None:
        return DASH
    value = number(figure["value"], form)
    if figure.get("low") is None or figure.get("high") is None:
        return value
    return f"{value} [{number(figure['low'], form)}, {number(figure['high'], form)}]"


def ends(figure: Mapping[str, Any]) -> dict[str, Any]:
    """The ends of its interval, as charts want them."""
    return {"low": figure["low"], "high": figure["high"]}


def number(value: float | None, form: str = ".1f") -> str:
    """A number, or a dash; from a million on with three digits and a power of ten.

    >>> number(1.25e9, "+.1f"), number(-0.5)
    ('+1.25e+09', '-0.5')
    """
    if value is None:
        return DASH
    sign = "+" if form.startswith("+") else ""
    return format(value, f"{sign}.3g" if abs(value) >= _MILLION else form)


def count(value: int, noun: str) -> str:
    """`1 seed`, `1,024 seeds`."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def dated(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """When and with what a run was made."""
    versions = ", ".join(f"{name} {v}" for name, v in (manifest.get("versions") or {}).items())
    found = [("made", str(manifest.get("created") or "")), ("with", versions)]
    return [(name, value) for name, value in found if value]


def slug(*parts: str) -> str:
    """A name for a place on the page."""
    kept = ("".join(c if c.isascii() and c.isalnum() else "-" for c in part) for part in parts)
    return "-".join(part.strip("-").lower() for part in kept)
