"""Settings of every process of the service, read from the environment (prefix ``APP_``)."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from redis.connection import parse_url


class StrategyRow(NamedTuple):
    """A strategy of invalidation, implemented in module `app.strategies.NAME`.

    `costs`: the work of an event, in one line. `layout`: the layout of the entries, see `app.layouts`.
    `searches`: an event walks over all keys, so that its cost grows with their number.
    """

    costs: str
    layout: str = "entries"
    searches: bool = False


STRATEGY_ROWS = {
    "scan": StrategyRow("SCAN the whole keyspace for each event", searches=True),
    "keys": StrategyRow("KEYS over the whole keyspace for each event", searches=True),
    "exact": StrategyRow("delete by name, from the list of a page's fragments"),
    "index": StrategyRow("look up the user's own index"),
    "index-naive": StrategyRow("read the user's index whole, delete all it names at once"),
    "hash": StrategyRow(
        "delete the user's one hash; after a switch old entries stay for one TTL", layout="hash"
    ),
    "generation": StrategyRow(
        "give the user's keys a new number; old entries stay for one TTL", layout="generation"
    ),
    "slot": StrategyRow(
        "SCAN the one slot of the user's keys, if the server is in cluster mode; else as scan",
        layout="tagged",
        searches=True,
    ),
    "scan-tagged": StrategyRow(
        "SCAN the whole keyspace: the pattern has a wildcard before the user's hash tag",
        layout="tagged",
        searches=True,
    ),
    "index-tagged": StrategyRow("look up the user's own index, which is in the user's slot", layout="tagged"),
    "ttl": StrategyRow("do nothing: entries live until their time ends", layout="plain"),
}
"""All strategies. This is the only list: the control page gets it from the storefront."""
STRATEGY_NAMES = tuple(STRATEGY_ROWS)
SCAN_COUNT_MAX = 10_000_000


def layout_of(strategy: str) -> str:
    """The layout that a strategy invalidates."""
    return STRATEGY_ROWS[strategy].layout


class Settings(BaseSettings):
    """The settings, a field per ``APP_*`` variable. Times carry their unit in the name.

    `operations_port`: a second port, where the web process serves settings, health and metrics on threads of their own;
    None for no such port, 0 for any free one. `searches_at_once`: the most SCAN and KEYS calls that the invalidator has
    in flight at a time; 0 for no limit. `store_cluster`: `store_url` is a node of a cluster, which is asked for the
    others (`app.cluster`).
    """

    model_config = SettingsConfigDict(env_prefix="APP_", frozen=True)

    store_url: str = "redis://127.0.0.1:6379/0"
    store_cluster: bool = False
    state_dir: Path = Path("state")
    server_name: str = Field(default="valkey", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    key_prefix: str = Field(default="shop", pattern=r"^[A-Za-z0-9_-]{1,64}$")
    entry_ttl_seconds: int = Field(default=3600, ge=1, le=10 * 365 * 86400)
    miss_cost_ms: float = Field(default=3, ge=0, le=60_000)
    strategy: str = "scan"
    scan_count: int = Field(default=1000, ge=1, le=SCAN_COUNT_MAX)
    fragments_per_user: int = Field(default=20, ge=1, le=100_000)
    value_bytes: int = Field(default=200, ge=16, le=1_000_000)
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    operations_port: int | None = Field(default=None, ge=0, le=65535)
    store_timeout_seconds: float = Field(default=5, gt=0, le=600)
    searches_at_once: int = Field(default=0, ge=0, le=100_000)
    invalidator_name: str = Field(default="invalidator-0", pattern=r"^[A-Za-z0-9._-]{1,64}$")

    @field_validator("strategy")
    @classmethod
    def _known_strategy(cls, value: str) -> str:
        if value not in STRATEGY_NAMES:
            raise ValueError(f"must be one of {', '.join(STRATEGY_NAMES)}")
        return value

    @field_validator("store_url")
    @classmethod
    def _parsable_url(cls, value: str) -> str:
        parse: Any = parse_url
        parse(value)
        return value


def load_settings() -> Settings:
    """Read the environment; on a bad value print one line on stderr and exit with code 2."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        field = "APP_" + "_".join(str(part) for part in first["loc"]).upper()
        print(f"{field}: {first['msg']} (got {first.get('input')!r})", file=sys.stderr)
        raise SystemExit(2) from None
