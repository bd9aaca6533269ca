"""Every environment variable, typed and read once: `WALKGRAPH_*`. Nothing else reads the environment."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from walkgraph.errors import Conflict, Refused

_LOCK = "lock"
MIN_TOKEN = 16
"""Characters of a token that somebody chose."""


def standard_home() -> Path:
    return Path.home() / ".walkgraph"


class Settings(BaseSettings):
    """Frozen; unknown arguments are refused. Times are in seconds."""

    model_config = SettingsConfigDict(env_prefix="WALKGRAPH_", frozen=True, extra="forbid")

    home: Path = Field(default_factory=standard_home)
    """Database, token and sockets; made with mode 0700."""
    host: str = "127.0.0.1"
    """Where it listens; an address that others can reach needs `token`."""
    port: int = Field(default=8421, ge=0, le=65535)
    """0 takes a free one."""
    token: SecretStr | None = None
    """The bearer token of clients; without it one is generated into `home/token`."""
    url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#]+/?$")
    """The service that clients speak with; by default the one that runs in `home`."""
    database_url: str | None = None
    """SQLAlchemy URL; by default an SQLite file in `home`."""
    checkpoint_roots: tuple[Path, ...] = ()
    """Folders that hold the folders named by `checkpoint:<name>`."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names, besides the loopback ones, that a request may be addressed to."""
    allowed_origins: tuple[str, ...] = ()
    """Origins (`https://studio.example:8443`), besides the service's own, whose pages may call it."""
    tls_cert: Path | None = None
    """A certificate, with those that sign it, as PEM; with it, and `tls_key`, the service speaks https alone."""
    tls_key: Path | None = None
    """The certificate's key as PEM, without a passphrase."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks (`10.0.0.0/8`) whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed."""
    token_requests_per_minute: int | None = Field(default=None, ge=1, le=1_000_000)
    """Of the token and the studio together; None: as many as they like. Keys have limits of their own."""
    token_concurrent_runs: int | None = Field(default=None, ge=1, le=10_000)
    """Likewise, runs at once."""
    audit_days: int = Field(default=365, ge=1, le=3650)
    """How long it is remembered who changed what; 100,000 changes at most."""
    plugins: tuple[str, ...] = ()
    """Plug-ins of installed packages whose components may be used; none is by itself."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Less than this is not written."""
    log_format: Literal["json", "text"] = "json"
    """An object a line, or words for people."""
    studio: bool = True
    """Mount the editor at `/studio` where it is installed."""
    run_timeout: float = Field(default=600.0, gt=0, le=86_400)
    """A run's deadline when the client names none."""
    drain_timeout: float = Field(default=30.0, ge=0, le=600)
    """How long runs may finish after SIGTERM."""
    start_timeout: float = Field(default=600.0, gt=0)
    """How long a deployment may load."""
    queue_limit: int = Field(default=256, ge=1, le=10_000)
    """Unfinished runs of one deployment; more are answered 503."""
    telemetry: Literal["off", "summary", "full"] = "summary"
    """The level of telemetry that a deployment starts with; it can be changed while it runs."""
    kept_traces: int = Field(default=200, ge=1, le=10_000)
    """Traces of one deployment's runs that are kept; 256 MiB of them at most."""
    batch_invariant: bool = False
    """A run gives the same numbers, to the last bit, whatever other runs it shares its device with. Steps take longer,
    only decoders of tokens run together, prompts share nothing, and a rank has one thread of its processor. Deployments
    that are started from then on keep to it."""

    fault_points: bool = False
    """For tests of the service alone: allow `fault`."""
    fault: str | None = Field(default=None, pattern=r"^(conductor|rank\d{1,4}):[a-z.]{1,32}:\d{1,9}$")
    """What fails once in deployments, as `rank0:send:3`: the third message that rank 0 sends."""

    otlp_endpoint: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    """Where traces of runs go as OpenTelemetry spans, `http://localhost:4318`: a collector that takes OTLP as JSON."""
    otlp_headers: SecretStr | None = None
    """Headers for it, `name=value,name=value`."""

    @model_validator(mode="after")
    def _exposed_only_with_a_token(self) -> Self:
        if self.token is not None and len(self.token.get_secret_value()) < MIN_TOKEN:
            raise ValueError(f"`WALKGRAPH_TOKEN` must have at least {MIN_TOKEN} characters")
        if self.token is None and not is_loopback(self.host):
            raise ValueError(
                f"`{self.host}` can be reached from other machines: set `WALKGRAPH_TOKEN` to a secret of at least "
                f"{MIN_TOKEN} characters, or keep `WALKGRAPH_HOST` at 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _faults_in_tests_alone(self) -> Self:
        if self.fault is not None and not self.fault_points:
            raise ValueError("`WALKGRAPH_FAULT` breaks deployments: only a test sets it, and `WALKGRAPH_FAULT_POINTS`")
        return self

    @model_validator(mode="after")
    def _reached_as_told(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("`WALKGRAPH_TLS_CERT` and `WALKGRAPH_TLS_KEY` are needed together")
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                raise ValueError(f"`{proxy}` in `WALKGRAPH_TRUSTED_PROXIES` is no address and no network") from None
        return self

    @model_validator(mode="after")
    def _collector_can_be_asked(self) -> Self:
        if any(not name or not found for name, found, _ in self._otlp_pairs()):
            raise ValueError("`WALKGRAPH_OTLP_HEADERS` is a list of `name=value`, with commas between them")
        texts = [text for field in self.otlp_header_fields().items() for text in field]
        if not all(text.isascii() and text.isprintable() for text in texts):
            raise ValueError("`WALKGRAPH_OTLP_HEADERS` has a character that no header may have")
        try:
            urlsplit(self.otlp_endpoint or "").port  # noqa: B018 - its look-up is the check
        except ValueError:
            raise ValueError("`WALKGRAPH_OTLP_ENDPOINT` needs a port from 0 to 65535, or none") from None
        return self

    def otlp_header_fields(self) -> dict[str, str]:
        return {name: unquote(value) for name, _, value in self._otlp_pairs()}

    def _otlp_pairs(self) -> list[tuple[str, str, str]]:
        text = self.otlp_headers.get_secret_value() if self.otlp_headers else ""
        parts = (part.partition("=") for part in text.split(",") if part.strip())
        return [(name.strip(), found, value.strip()) for name, found, value in parts]

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'walkgraph.db'}"

    @property
    def address_file(self) -> Path:
        """Where a running service writes its process and address."""
        return self.home / "service.json"

    @property
    def token_file(self) -> Path:
        return self.home / "token"


class _Listed(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="WALKGRAPH_", frozen=True, extra="ignore")

    plugins: tuple[str, ...] = ()


def listed_plugins() -> tuple[str, ...]:
    """`Settings.plugins` by itself, for what has no other setting: every process reads it from its own environment."""
    return _Listed().plugins


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def prepare_home(settings: Settings) -> None:
    """Make the home folder, private to its owner. Raises Refused where it is not ours to use."""
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not settings.home.is_dir() or settings.home.is_symlink():
        raise Refused(f"`{settings.home}` must be a folder, not a link; set `WALKGRAPH_HOME` to another one")
    settings.home.chmod(0o700)


@contextmanager
def only_one(settings: Settings) -> Generator[None]:
    """Hold the home's lock: its owner's death frees it, however it died. Raises Conflict where it is held."""
    with (settings.home / _LOCK).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"a Walkgraph service is running in `{settings.home}` already; see `walkgraph status`"
            ) from None
        yield


def is_running(settings: Settings) -> bool:
    """Whether a service holds this home."""
    try:
        with (settings.home / _LOCK).open("r") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def read_token(settings: Settings) -> str | None:
    """The token clients must show: the configured one, or that of a service started earlier in this home."""
    if settings.token is not None:
        return settings.token.get_secret_value()
    try:
        return settings.token_file.read_text().strip() or None
    except FileNotFoundError:
        return None


def ensure_token(settings: Settings) -> str:
    """As `read_token`; where there is none, 256 random bits are written to `home/token` with mode 0600."""
    found = read_token(settings)
    if found is not None:
        if settings.token is None and stat.S_IMODE(settings.token_file.stat().st_mode) != 0o600:
            settings.token_file.chmod(0o600)
        return found
    prepare_home(settings)
    token = secrets.token_urlsafe(32)
    write_private(settings.token_file, token + "\n")
    return token


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)


def worker_environment() -> dict[str, str]:
    """What a worker process inherits: ours, and OpenMP threads that spin for some 10 us and then sleep while they wait.

    Unbounded spinning beside another process on the same two cores made a step 30 times slower; no spinning at all
    makes one on idle cores twice as slow. libgomp reads it once, when torch is imported.
    """
    return {**os.environ, "GOMP_SPINCOUNT": "20000"}
