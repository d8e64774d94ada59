"""Metrics come in the format that a client asks for, and in plain text where nobody can tell which that is."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge

from app.exposition import encoder_for

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (f"{OPEN}; version=1.0.0", f"{OPEN}; version=1.0.0; charset=utf-8; escaping=underscores"),
        ("", PLAIN),
        ("text/html", PLAIN),
        (f"{OPEN}; version=x", PLAIN),
        (f"{OPEN}; version=1..0", PLAIN),
        ("text/plain; version=1.0.0x", PLAIN),
        (f"{OPEN}; version={'9' * 5000}", PLAIN),
        (f"{OPEN}; version=2.0\r\n folded: x", PLAIN),
    ],
)
def test_any_header_gets_metrics(accept: str, kind: str) -> None:
    """A version that is no number and a header of two lines are no error, and come back in no header of the answer."""
    registry = CollectorRegistry()
    Gauge("one", "Said.", registry=registry).set(1)
    encode, content_type = encoder_for(accept)
    assert content_type == kind
    assert b"one 1.0" in encode(registry)
