"""Fragments of a user's page: their names, store keys, patterns, index sets and the simulated body.

Entries are ``{prefix}:{user}:{name}``. A user's index is a set of fragment names per time bucket,
``{prefix}-index:{user}:{bucket}``; the prefix differs from an entry's, so no fragment pattern matches an
index set.
"""

import re
from dataclasses import dataclass

AREAS = ("page", "cart", "offer")
USER_MAX = 10**9
NAME_MAX = 64
CLOCK_SKEW_SECONDS = 1.0
"""How far the clocks of the processes may differ; both the life of an index set and the search allow for it.
"""

_NAME = re.compile(rf"(?:{'|'.join(AREAS)})-[a-z0-9-]+")
_USER = re.compile(r"[1-9][0-9]{0,9}")


def fragment_names(count: int) -> list[str]:
    """A user's usual fragments: ``count`` names over the areas (page-0, cart-0, offer-0, page-1 ...)."""
    return [f"{AREAS[i % len(AREAS)]}-{i // len(AREAS)}" for i in range(count)]


def is_fragment_name(name: str) -> bool:
    """Whether ``name`` is ``<area>-<rest>`` of at most 64 of the characters a-z, 0-9 and '-'."""
    return len(name) <= NAME_MAX and _NAME.fullmatch(name) is not None


def parse_user(text: str) -> int | None:
    """The user id 1..10**9 written without sign or leading zeros, or None."""
    if _USER.fullmatch(text) is None or int(text) > USER_MAX:
        return None
    return int(text)


def render(user: int | str, name: str, size: int) -> str:
    """The body of a fragment: exactly ``size`` ASCII characters that begin with the user and the name."""
    return f"{user}/{name} ".ljust(size, ".")[:size]


@dataclass(frozen=True)
class Keyspace:
    """Names of all keys the service uses, and the time arithmetic of the index.

    Buckets are one TTL wide. An entry put at time t lies in bucket floor(t / TTL) and expires at t + TTL,
    which is before (bucket + 2) * TTL, when its index set expires. So a set outlives each of its entries
    (cached implies indexed), a member outlives its entry by at most one TTL, and entries alive now are in the
    current bucket or the one before. The TTL is part of that arithmetic: after changing it, wait one old TTL
    (or empty the store).
    """

    prefix: str
    ttl_seconds: int

    def entry(self, user: int | str, name: str) -> str:
        """Key of a cached fragment."""
        return f"{self.prefix}:{user}:{name}"

    def pattern(self, user: int, area: str) -> str:
        """Glob for all of a user's fragments in one area."""
        return f"{self.prefix}:{user}:{area}-*"

    def index(self, user: int | str, bucket: int) -> str:
        """Key of a user's index set for one time bucket."""
        return f"{self.prefix}-index:{user}:{bucket}"

    def marker(self) -> str:
        """Key that tells the warmer whether the store still holds what it filled."""
        return f"{self.prefix}-warmed"

    def bucket(self, now: float) -> int:
        """The bucket that an entry put at ``now`` (unix seconds) belongs to."""
        return int(now // self.ttl_seconds)

    def live_buckets(self, now: float) -> range:
        """All buckets that can hold an entry alive at ``now``: two, or three within the clock skew of a
        boundary.
        """
        first = self.bucket(now - CLOCK_SKEW_SECONDS) - 1
        return range(first, self.bucket(now + CLOCK_SKEW_SECONDS) + 1)

    def entry_expires_ms(self, now: float) -> int:
        """Unix milliseconds at which an entry put at ``now`` expires."""
        return int((now + self.ttl_seconds) * 1000)

    def index_expires_ms(self, bucket: int) -> int:
        """Unix milliseconds at which a bucket's index set expires."""
        return int(((bucket + 2) * self.ttl_seconds + CLOCK_SKEW_SECONDS) * 1000)
