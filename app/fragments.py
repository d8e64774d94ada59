"""Fragments of a user's page: their names, keys, patterns, index sets and the simulated body.

Entries are ``{prefix}:user:{user}:{name}:{release}``. The release names the templates that rendered the fragment.
While a new release is rolled out, both serve, each with its own entries, and an event must reach the entries of both.
So the star at the end of a pattern stands for the release, too, and the members of an index set name the release:
``{release}:{name}``. (A star in the middle costs more: Redis tries it at every position of every key, and Dragonfly
1.28.1 makes an automaton of it for each call; see docs/servers.md.) A user's index is one such set per time bucket,
``{prefix}-index:{user}:{bucket}``; no pattern of entries matches it.
"""

import random
import re
from dataclasses import dataclass, replace

RELEASE = "r1"
AREAS = ("page", "cart", "offer")
USER_MAX = 10**9
NAME_MAX = 64
CLOCK_SKEW_SECONDS = 1.0
"""The largest difference of the processes' clocks. The expiry of an index set and `Keyspace.live_buckets` allow for it.
"""

_NAME = re.compile(rf"(?:{'|'.join(AREAS)})-[a-z0-9-]+")
_RELEASE = re.compile(r"[a-z0-9.-]{1,32}")
_USER = re.compile(r"[1-9][0-9]{0,9}")


def fragment_names(count: int) -> list[str]:
    """A user's usual fragments: ``count`` names over the areas (page-0, cart-0, offer-0, page-1 ...)."""
    return [f"{AREAS[i % len(AREAS)]}-{i // len(AREAS)}" for i in range(count)]


def is_fragment_name(name: str) -> bool:
    """True if ``name`` is ``<area>-<rest>`` of at most 64 of the characters a-z, 0-9 and '-'."""
    return len(name) <= NAME_MAX and _NAME.fullmatch(name) is not None


def parse_user(text: str) -> int | None:
    """The user id 1..10**9 written without sign or leading zeros, or None."""
    if _USER.fullmatch(text) is None or int(text) > USER_MAX:
        return None
    return int(text)


def render(user: int | str, name: str, size: int) -> str:
    """The body of a fragment: exactly ``size`` ASCII characters that begin with the user and the name."""
    return f"{user}/{name} ".ljust(size, ".")[:size]


def generation_step() -> int:
    """A random step from one generation of a user to the next, 2**35 on average.

    With steps of 1, a number that the server lost (evicted, expired) would count through the same generations again
    and bring back what was cached in them. A random step meets a given number again with a probability of 1 in 2**36.
    The number has 64 bits, enough for more than 10**8 steps of each user between two losses.
    """
    return random.randint(1, 2**36)


def written(generation: int) -> str:
    """A generation as it is written in keys: hexadecimal."""
    return f"{generation:x}"


@dataclass(frozen=True)
class Keyspace:
    """Names of all keys the service uses, and the time arithmetic of the index.

    Buckets are one TTL wide. An entry put at time t lies in bucket floor(t / TTL) and expires at t + TTL,
    which is before (bucket + 2) * TTL, when its index set expires. So a set outlives each of its entries
    (cached implies indexed), a member outlives an expired entry by at most one TTL, and entries alive now are in the
    current bucket or the one before. After a clock was set back by up to one TTL, they are also in the bucket after the
    current one. The TTL is part of that arithmetic: after changing it, wait one old TTL (or empty the server).
    """

    prefix: str
    ttl_seconds: int

    def at(self, epoch: int) -> "Keyspace":
        """The names in an epoch (see `app.layouts`). Names of the first epoch, 0, carry no number."""
        return replace(self, prefix=f"{self.prefix}-e{epoch}") if epoch else self

    def entry(self, user: int | str, name: str) -> str:
        """Key of a fragment cached by this release."""
        return f"{self.prefix}:user:{user}:{name}:{RELEASE}"

    def member(self, name: str) -> str:
        """Member of an index set that stands for a fragment cached by this release."""
        return f"{RELEASE}:{name}"

    def entry_of(self, user: int, member: bytes) -> str:
        """Key of the entry that a member of the user's index stands for, whatever its release."""
        release, _, name = member.decode().partition(":")
        return f"{self.prefix}:user:{user}:{name}:{release}"

    def parse_entry(self, key: str) -> tuple[int, str] | None:
        """The user and the index member of an entry's key, or None for any other key."""
        user, _, rest = key.removeprefix(f"{self.prefix}:user:").partition(":")
        name, _, release = rest.rpartition(":")
        number = parse_user(user)
        if number is None or not is_fragment_name(name) or not _RELEASE.fullmatch(release):
            return None
        return number, f"{release}:{name}"

    def pattern(self, user: int, area: str) -> str:
        """Glob for all of a user's fragments in one area, of any release."""
        return f"{self.prefix}:user:{user}:{area}-*"

    def index(self, user: int | str, bucket: int) -> str:
        """Key of a user's index set for one time bucket."""
        return f"{self.prefix}-index:{user}:{bucket}"

    def user_hash(self, user: int | str) -> str:
        """Key of the hash of all of a user's fragments in the layout `hash`; fields are named as by `member`."""
        return f"{self.prefix}-hash:{user}"

    def generation(self, user: int | str) -> str:
        """Key of a user's generation number, which is part of the entries' keys in the layout `generation`."""
        return f"{self.prefix}-generation:{user}"

    def entry_in(self, user: int | str, generation: str, name: str) -> str:
        """Key of a fragment cached by this release in one of the user's generations (in the form of `written`)."""
        return f"{self.prefix}:user:{user}:{generation}:{name}:{RELEASE}"

    def marker(self) -> str:
        """Key of the marker by which the warmer knows that the server still holds its entries."""
        return f"{self.prefix}-warmed"

    def bucket(self, now: float) -> int:
        """The bucket that an entry put at ``now`` (unix seconds) belongs to."""
        return int(now // self.ttl_seconds)

    def live_buckets(self, now: float) -> range:
        """All buckets that can hold an entry alive at ``now``: three, or four within the clock skew of a boundary.

        The last of them lies in the future: entries are in it that were put before a clock was set back.
        """
        first = self.bucket(now - CLOCK_SKEW_SECONDS) - 1
        return range(first, self.bucket(now + CLOCK_SKEW_SECONDS) + 2)

    def entry_expires_ms(self, now: float) -> int:
        """Unix milliseconds at which an entry put at ``now`` expires."""
        return int((now + self.ttl_seconds) * 1000)

    def index_expires_ms(self, bucket: int) -> int:
        """Unix milliseconds at which a bucket's index set expires."""
        return int(((bucket + 2) * self.ttl_seconds + CLOCK_SKEW_SECONDS) * 1000)


@dataclass(frozen=True)
class TaggedKeyspace(Keyspace):
    """The names in the layout `tagged`: the user is the hash tag of all of the user's keys, before any wildcard.

    A hash tag is what stands in braces. A cluster puts all keys with one tag into one slot, so a user's transaction is
    carried out by one node. And a search visits that slot only, if its pattern has the tag before its first wildcard
    (Redis 8, Valkey 8, in cluster mode).
    """

    def entry(self, user: int | str, name: str) -> str:
        """Key of a fragment cached by this release."""
        return f"{self.prefix}:{{{user}}}:{RELEASE}:{name}"

    def entry_of(self, user: int, member: bytes) -> str:
        """Key of the entry that a member of the user's index stands for, whatever its release."""
        return f"{self.prefix}:{{{user}}}:{member.decode()}"

    def parse_entry(self, key: str) -> tuple[int, str] | None:
        """The user and the index member of an entry's key, or None for any other key."""
        user, _, member = key.removeprefix(f"{self.prefix}:{{").partition("}:")
        release, _, name = member.partition(":")
        number = parse_user(user)
        if number is None or not is_fragment_name(name) or not _RELEASE.fullmatch(release):
            return None
        return number, member

    def pattern(self, user: int, area: str) -> str:
        """Glob for all of a user's fragments in one area, of any release."""
        return f"{self.prefix}:{{{user}}}:*:{area}-*"

    def index(self, user: int | str, bucket: int) -> str:
        """Key of a user's index set for one time bucket."""
        return f"{self.prefix}-index:{{{user}}}:{bucket}"


KEYSPACES: dict[str, type[Keyspace]] = {"tagged": TaggedKeyspace}
"""Layout → the names of its keys, where they differ from `Keyspace`."""


def keyspace_of(layout: str, prefix: str, ttl_seconds: int) -> Keyspace:
    """The names of a layout's keys, in the first epoch."""
    return KEYSPACES.get(layout, Keyspace)(prefix, ttl_seconds)
