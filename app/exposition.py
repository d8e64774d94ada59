"""Metrics in the format that a client asks for. Used by the storefront, the control page and Locust's page alike."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector


def encoder_for(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """The function that writes metrics in the format that an Accept header prefers, and its content type.

    prometheus_client raises `TypeError` for a version that is no number, and repeats the version in the content type.
    So for such a header, or one with a line break in it, the answer is in the plain text format, as without a header.
    """
    try:
        return choose_encoder(accept if accept.isprintable() else "")
    except TypeError:
        return choose_encoder("")
