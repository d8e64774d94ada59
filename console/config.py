"""Settings of the control page, read from the environment (prefix `CONTROL_`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from lab.errors import UsageError

SCAN_COUNT = 1000
SCAN_COUNT_MAX = 10_000_000
PARTS = ("redis://…", "web", "invalidator", "Locust", "probe")


@dataclass(frozen=True)
class ServerAddresses:
    """The addresses of one server of the scene and of the processes around it."""

    name: str
    server: str
    web: str
    invalidator: str
    locust: str
    probe: str


def read_servers(text: Any) -> Any:
    """Parse `name=redis://host:port|web|invalidator|locust|probe`, several separated by commas or line breaks."""
    if not isinstance(text, str):
        return text
    found = []
    for row in re.split(r"[,\n]", text):
        if not row.strip():
            continue
        name, _, rest = row.strip().partition("=")
        addresses = [address.strip().rstrip("/") for address in rest.split("|")]
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,31}", name):
            raise ValueError(f"{name[:40]!r} is not a server name: use a-z, 0-9 and '-', at most 32")
        if len(addresses) != len(PARTS):
            raise ValueError(f"{name} needs {len(PARTS)} addresses separated by '|': {', '.join(PARTS)}")
        if not re.match(r"rediss?://\S", addresses[0]):
            raise ValueError(f"{name}: the first address must begin with redis://")
        for part, address in zip(PARTS[1:], addresses[1:], strict=True):
            if not re.match(r"https?://\S", address):
                raise ValueError(f"{name}: the address of {part} must begin with http://")
        found.append(ServerAddresses(name, *addresses))
    if not found:
        raise ValueError("name at least one server")
    if len({server.name for server in found}) < len(found):
        raise ValueError("each server may appear once")
    return tuple(found)


def read_pairs(text: Any) -> Any:
    """Return `name=address,name=address` as a dictionary."""
    if not isinstance(text, str):
        return text
    pairs = [row.strip().partition("=") for row in text.split(",") if row.strip()]
    if any(not address for _, _, address in pairs):
        raise ValueError("must look like name=http://…,name=http://…")
    return {name.strip(): _web_address(address.strip()) for name, _, address in pairs}


def read_counts(text: Any) -> Any:
    """Return `name=COUNT,name=COUNT` as a dictionary."""
    if not isinstance(text, str):
        return text
    pairs = [row.strip().partition("=") for row in text.split(",") if row.strip()]
    found = {}
    for name, _, count in pairs:
        if not (count.strip().isascii() and count.strip().isdigit() and len(count) < 12):
            raise ValueError("must look like name=1000,name=100000")
        if not 1 <= int(count) <= SCAN_COUNT_MAX:
            raise ValueError(f"a COUNT must be from 1 to {SCAN_COUNT_MAX:,}")
        found[name.strip()] = int(count)
    return found


def _web_address(text: str) -> str:
    if text and not re.match(r"https?://\S", text):
        raise ValueError("must begin with http:// or https://")
    return text.rstrip("/")


WebAddress = Annotated[str, AfterValidator(_web_address)]


class Config(BaseSettings):
    """The settings, a field for each `CONTROL_*` variable. Times carry their unit in the name.

    The control page connects to the addresses of `servers`; the browser opens `grafana_url`, `prometheus_url`,
    `tempo_url` and `locust_urls`. `series_prefix`: the prefix of a server's name in series, if several
    groups share one Grafana (deploy/README.md); links to dashboards then choose a server of this page.
    `keys`: the number of keys that the customers' visits build up, in `grow_seconds`. `utilisation`: the share of the
    server's time that the events' searches take at that number of keys. `scan_counts`: SCAN's COUNT by server.
    `rest_seconds`: pause before the first story, so that a machine that has just started everything is measured at
    rest. `backlog_pause`: with more events in flight than this no more are sent, until fewer than `backlog_resume` are
    left: a bound for the invalidator's memory, which the planned load never reaches.
    """

    model_config = SettingsConfigDict(env_prefix="CONTROL_", env_ignore_empty=True, frozen=True)

    servers: Annotated[tuple[ServerAddresses, ...], NoDecode, BeforeValidator(read_servers)]
    story: Literal["on", "off"] = "on"
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)

    grafana_url: WebAddress = ""
    prometheus_url: WebAddress = ""
    tempo_url: WebAddress = ""
    series_prefix: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    locust_urls: Annotated[dict[str, str], NoDecode, BeforeValidator(read_pairs)] = Field(
        default_factory=dict
    )

    keys: int = Field(default=120_000, ge=2_000, le=50_000_000)
    grow_seconds: float = Field(default=240, ge=1, le=86_400)
    utilisation: float = Field(default=0.3, gt=0, le=3)
    scan_counts: Annotated[dict[str, int], NoDecode, BeforeValidator(read_counts)] = Field(
        default_factory=dict
    )
    rest_seconds: float = Field(default=0, ge=0, le=600)
    healthy_seconds: float = Field(default=15, ge=1, le=600)
    key_prefix: str = Field(default="shop", pattern=r"^[A-Za-z0-9_-]{1,64}$")
    fragments_per_user: int = Field(default=20, ge=1, le=100_000)
    slowlog_threshold_us: int = Field(default=10_000, ge=0)
    store_timeout_seconds: float = Field(default=30, gt=0, le=600)

    backlog_pause: int = Field(default=600, ge=1)
    backlog_resume: int = Field(default=50, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Config:
        if self.backlog_resume >= self.backlog_pause:
            raise ValueError("backlog_resume must be below backlog_pause")
        return self

    @property
    def customers(self) -> int:
        """Number of customers whose pages make up all `keys`: each has its fragments and an index set."""
        return max(1, self.keys // (self.fragments_per_user + 1))

    @property
    def visits_per_second(self) -> float:
        """Visits a second with which all customers come once in `grow_seconds`."""
        return self.customers / self.grow_seconds

    def scan_count(self, server: str) -> int:
        """Return SCAN's COUNT on that server, by default `SCAN_COUNT`."""
        return self.scan_counts.get(server, SCAN_COUNT)


def load_config() -> Config:
    """Read the environment. Raises `UsageError` with one line that names the variable."""
    try:
        return Config()  # type: ignore[call-arg] # the fields come from the environment
    except ValidationError as error:
        first = error.errors()[0]
        where = "_".join(str(part) for part in first["loc"][:1]).upper()
        message = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"CONTROL_{where or '*'}: {message}") from None
