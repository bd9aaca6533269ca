"""All environment variables `WALKGRAPH_*`, and CUDA's own choice of GPUs, typed and read once.

Nothing else reads the environment.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import re
import secrets
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self, cast
from urllib.parse import unquote, urlsplit

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from walkgraph.errors import Conflict, Refused
from walkgraph.servers import Server, parse_servers

_LOCK = "lock"
_ADDED = "plugins.json"
_SHORT = 8
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|_KEY|APIKEY|CREDENTIAL|_HEADERS", re.IGNORECASE)
MIN_TOKEN = 16
"""The fewest characters of a configured token."""


def standard_home() -> Path:
    return Path.home() / ".walkgraph"


class Settings(BaseSettings):
    """Frozen; unknown arguments are refused. Times are in seconds."""

    model_config = SettingsConfigDict(env_prefix="WALKGRAPH_", frozen=True, extra="forbid")

    home: Path = Field(default_factory=standard_home)
    """Folder for the database, token and sockets; created with mode 0700."""
    host: str = "127.0.0.1"
    """Address to listen on; one that others can reach needs `token`."""
    port: int = Field(default=8421, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    token: SecretStr | None = None
    """The bearer token of clients; without it one is generated in `home/token`."""
    url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#]+/?$")
    """The service that clients connect to; by default the one running in `home`."""
    database_url: str | None = None
    """SQLAlchemy URL; by default an SQLite file in `home`."""
    peer_url: str | None = Field(default=None, max_length=53, pattern=r"^https?://[^\s/?#@]+$")
    """The address at which other services reach this one, `http://a.example:8421`. Of those that have a peer URL and
    share a PostgreSQL database, one serves. The others stand by: they pass connections on to it, and one takes over
    once it is gone."""
    checkpoint_roots: tuple[Path, ...] = ()
    """Folders that contain the folders named by `checkpoint:<name>`."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names, besides the loopback ones, that requests may be addressed to."""
    allowed_origins: tuple[str, ...] = ()
    """Origins (`https://studio.example:8443`), besides the service's own, whose pages may call it."""
    tls_cert: Path | None = None
    """A certificate with its chain, as PEM; with it and `tls_key` the service speaks only https."""
    tls_key: Path | None = None
    """The certificate's key as PEM, without a passphrase."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks (`10.0.0.0/8`) whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted."""
    token_requests_per_minute: int | None = Field(default=None, ge=1, le=1_000_000)
    """Requests per minute of the token and the studio together; None: no limit. Keys have limits of their own."""
    token_concurrent_runs: int | None = Field(default=None, ge=1, le=10_000)
    """Runs at once of the token and the studio together; None: no limit."""
    audit_days: int = Field(default=365, ge=1, le=3650)
    """Days for which the audit log keeps changes; at most 100,000 changes."""
    call_hosts: tuple[str, ...] = ()
    """Servers that nodes may call, `api.example` (https), `*.acme.example`, `http://gpu.example:8000`; by default none.
    An address that isn't public must be listed itself, also where a listed name leads to it."""
    secrets_dir: Path | None = None
    """Folder of the secrets that calls of nodes may send, two files a secret: `NAME` and `NAME.hosts`; by default
    `home/secrets`."""
    backend: Literal["local", "ray"] = "local"
    """The way in which workers of deployments are started: `local`, as processes of this service; `ray`, as actors of a
    Ray cluster, which needs the extra `ray`."""
    ray_address: str = "auto"
    """Address of a Ray cluster's head, `10.0.0.1:6379`, for `backend` `ray`; `auto` is the one of this machine."""
    plugins: tuple[str, ...] = ()
    """Plug-ins of installed packages whose components may be used, besides those that `walkgraph plugins add` has put
    into `home/plugins.json`; none is enabled by default."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is written."""
    log_format: Literal["json", "text"] = "json"
    """`json`: one object per line; `text`: readable lines."""
    studio: bool = True
    """Mount the editor at `/studio` if it is installed."""
    move_after: float = Field(default=10.0, ge=0, le=3600)
    """Seconds for which a host of a cluster may be lost before its ranks that may run on any (`any`) are brought to
    another."""
    run_timeout: float = Field(default=600.0, gt=0, le=86_400)
    """A run's deadline if the client names none."""
    drain_timeout: float = Field(default=30.0, ge=0, le=600)
    """Time that runs get to finish after SIGTERM."""
    start_timeout: float = Field(default=600.0, gt=0)
    """Time that a deployment may take to load."""
    queue_limit: int = Field(default=256, ge=1, le=10_000)
    """The most unfinished runs of one deployment; further ones are answered with 503."""
    kept_results: int = Field(default=256 * 2**20, ge=0, le=2**40)
    """Bytes of results that each rank keeps of deterministic nodes: with the same inputs and parameters they are then
    not run again. Scratch deployments keep those of all such nodes, others of nodes that say `kept`. 0 keeps none."""
    telemetry: Literal["off", "summary", "full"] = "summary"
    """Initial telemetry level of a deployment; it can be changed while it runs."""
    kept_traces: int = Field(default=200, ge=1, le=10_000)
    """The most traces kept of one deployment's runs; at most 256 MiB of them."""
    shared_pages: Literal["key", "deployment"] = "key"
    """Whose requests find the cached pages of texts and pictures that begin alike: those of one access key (and those
    of the token and the studio), or all requests to a deployment. How soon an answer begins tells whether its prompt
    was cached, so `deployment` lets keys find out what others have sent, guess by guess."""
    batch_invariant: bool = False
    """A run gives bitwise equal numbers whatever other runs share its device. Steps take longer, only decoders of
    tokens are batched, prompts share nothing, and a rank uses one CPU thread. Applies to deployments started from then
    on."""
    numa_binding: bool = True
    """On a host with several NUMA nodes, run ranks with a GPU on the processors of its node only, so that their pinned
    memory lies there too. Applies to deployments started from then on."""

    fault_points: bool = False
    """For tests of the service alone: allow `fault`."""
    fault: str | None = Field(default=None, pattern=r"^(conductor|rank\d{1,4}):[a-z.]{1,32}:\d{1,9}$")
    """The fault that happens once in each deployment, as `rank0:send:3`: the third message that rank 0 sends."""

    otlp_endpoint: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    """The address to which traces of runs are sent as OpenTelemetry spans, `http://localhost:4318`: a collector that
    accepts OTLP as JSON."""
    otlp_headers: SecretStr | None = None
    """Headers for the collector, `name=value,name=value`."""

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
                raise ValueError(
                    f"`{proxy}` in `WALKGRAPH_TRUSTED_PROXIES` is neither an address nor a network"
                ) from None
        return self

    @model_validator(mode="after")
    def _servers_can_be_read(self) -> Self:
        try:
            self.callable_servers()
        except Refused as error:
            raise ValueError(f"`WALKGRAPH_CALL_HOSTS`: {error}") from None
        return self

    @model_validator(mode="after")
    def _collector_can_be_asked(self) -> Self:
        if any(not name or not found for name, found, _ in self._otlp_pairs()):
            raise ValueError("`WALKGRAPH_OTLP_HEADERS` must be a comma-separated list of `name=value`")
        texts = [text for field in self.otlp_header_fields().items() for text in field]
        if not all(text.isascii() and text.isprintable() for text in texts):
            raise ValueError("`WALKGRAPH_OTLP_HEADERS` has a character that headers can't contain")
        try:
            urlsplit(self.otlp_endpoint or "").port  # noqa: B018 - its look-up is the check
        except ValueError:
            raise ValueError("`WALKGRAPH_OTLP_ENDPOINT` needs a port from 0 to 65535, or none") from None
        return self

    def callable_servers(self) -> tuple[Server, ...]:
        """Those of `call_hosts`. Raises Refused."""
        return parse_servers(self.call_hosts)

    def otlp_header_fields(self) -> dict[str, str]:
        return {name: unquote(value) for name, _, value in self._otlp_pairs()}

    def secrets(self) -> tuple[str, ...]:
        """Values that no log may show, besides the token; without short ones, which are words of other texts too."""
        urls = [urlsplit(url) for url in (self.database_url, self.otlp_endpoint) if url]
        found = [*self.otlp_header_fields().values(), *(url.password or "" for url in urls)]
        return tuple(text for secret in found for text in {secret, unquote(secret)} if len(text) >= _SHORT)

    def _otlp_pairs(self) -> list[tuple[str, str, str]]:
        text = self.otlp_headers.get_secret_value() if self.otlp_headers else ""
        parts = (part.partition("=") for part in text.split(",") if part.strip())
        return [(name.strip(), found, value.strip()) for name, found, value in parts]

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'walkgraph.db'}"

    def all_plugins(self) -> tuple[str, ...]:
        """Those of the environment, and those that `walkgraph plugins add` has listed. Raises Refused if their file is
        damaged."""
        return tuple(dict.fromkeys((*self.plugins, *added_plugins(self.home))))

    @property
    def secrets_folder(self) -> Path:
        return self.secrets_dir or self.home / "secrets"

    @property
    def address_file(self) -> Path:
        """File where a running service writes its process id and address."""
        return self.home / "service.json"

    @property
    def token_file(self) -> Path:
        return self.home / "token"


class _Listed(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="WALKGRAPH_", frozen=True, extra="ignore")

    home: Path = Field(default_factory=standard_home)
    plugins: tuple[str, ...] = ()


def listed_plugins() -> tuple[str, ...]:
    """The plug-ins of the environment and of the home, for code without other settings: every process reads them for
    itself. Raises Refused if the home's file is damaged."""
    found = _Listed()
    return tuple(dict.fromkeys((*found.plugins, *added_plugins(found.home))))


def copied_checkpoints() -> Path:
    """The folder of checkpoints that come from other hosts, for actors on a host without a service."""
    return _Listed().home / "checkpoints"


def added_plugins(home: Path) -> tuple[str, ...]:
    """Those that `walkgraph plugins add` has listed. Raises Refused if the file is damaged."""
    path = home / _ADDED
    try:
        names: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in cast("list[object]", names)):
        raise Refused(f"`{path}` must be a JSON list of names; mend it, or remove it and add the plug-ins again")
    return tuple(cast("list[str]", names))


def list_plugins(settings: Settings, names: Iterable[str]) -> None:
    """Write the home's list of plug-ins."""
    prepare_home(settings)
    write_private(settings.home / _ADDED, json.dumps(sorted(set(names)), indent=2) + "\n")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def prepare_home(settings: Settings) -> None:
    """Create the home folder, private to its owner. Raises Refused if it can't be ours."""
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not settings.home.is_dir() or settings.home.is_symlink():
        raise Refused(f"`{settings.home}` must be a folder, not a link; set `WALKGRAPH_HOME` to another one")
    settings.home.chmod(0o700)


@contextmanager
def only_one(settings: Settings) -> Generator[None]:
    """Hold the home's lock; it is freed with its owner, however that dies. Raises Conflict if it is taken."""
    with (settings.home / _LOCK).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"a Walkgraph service is already running in `{settings.home}`; see `walkgraph status`"
            ) from None
        yield


def is_running(settings: Settings) -> bool:
    """True if a service holds this home."""
    try:
        with (settings.home / _LOCK).open("r") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def read_token(settings: Settings) -> str | None:
    """The token that clients must send: the configured one, or that of a service started earlier in this home."""
    if settings.token is not None:
        return settings.token.get_secret_value()
    try:
        return settings.token_file.read_text().strip() or None
    except FileNotFoundError:
        return None


def ensure_token(settings: Settings) -> str:
    """Like `read_token`; if there is none, write 256 random bits to `home/token` with mode 0600."""
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
    """Write a file that only its owner can read, atomically."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)


def environment_secrets() -> tuple[str, ...]:
    """Values of variables whose names say that they are secret, whoever set them."""
    return tuple(value for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= _SHORT)


def worker_environment() -> dict[str, str]:
    """The environment of a deployment's processes: ours, with the workers' choices of CUDA and OpenMP made.

    GPUs are numbered as the driver's tools number them, which is how plans name them. OpenMP threads that wait spin for
    some 50 us and then sleep: a turn is a `pause`, which takes an EPYC 25 ns. Spinning for 500 us beside other
    processes on the same two cores took up to six times the CPU; spinning for 10 us makes small steps on idle cores a
    fifth slower. libgomp reads it once, when torch is imported.
    NumPy's OpenBLAS would make threads when it is imported, which a process that workers are forked from can't have.
    Where workers send by NIXL, its UCX would listen on all networks unless it is told which.
    """
    chosen = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "GOMP_SPINCOUNT": "2000", "OPENBLAS_NUM_THREADS": "1"}
    return {"UCX_NET_DEVICES": "lo", **os.environ, **chosen}


def actor_environment() -> dict[str, str]:
    """`worker_environment` in an actor of Ray, without what Ray chooses for a process that asks for no processor: one
    thread, and no GPU."""
    chosen = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return {name: value for name, value in worker_environment().items() if chosen.get(name) != value}


def use_gpus_of_host() -> None:
    """Have this process, an actor of Ray, see all GPUs: Ray hides them from one that asks for none."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        del os.environ["CUDA_VISIBLE_DEVICES"]


def use_interface(name: str) -> None:
    """Have what this process sends by NIXL go over a network interface, unless the user has named another."""
    if os.environ.get("UCX_NET_DEVICES", "lo") == "lo":
        os.environ["UCX_NET_DEVICES"] = name


def openmp_threads() -> int | None:
    """OMP_NUM_THREADS, the most threads that a process shall compute with; None where it isn't set, or is no number.
    Of a list, which has an entry for each level of nesting, the first counts."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def visible_gpus() -> tuple[str, ...] | None:
    """Entries of CUDA_VISIBLE_DEVICES, indices or UUIDs; None where it isn't set and all GPUs are visible."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if listed is None else tuple(entry.strip() for entry in listed.split(","))
