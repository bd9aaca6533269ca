"""Exports the traces of finished runs to an OpenTelemetry collector: OTLP over HTTP, as JSON.

Nothing waits for it: traces are dropped and counted if the queue is full, or if the collector doesn't accept them after
a few tries. A run is not exported if its caller did not sample its own trace.
"""

import asyncio
import contextlib
import email.utils
import math
import time
from collections.abc import Mapping

import anyio.to_thread
import httpx
import structlog

from walkgraph.telemetry import traceparent
from walkgraph.telemetry.sinks import otlp
from walkgraph.telemetry.trace import Trace

PATH = "/v1/traces"
WAITING = 64
"""Traces in the queue."""
TIMEOUT = httpx.Timeout(10.0)
PAUSES = (1.0, 2.0, 4.0)
"""Seconds before each retry."""
LONGEST_PAUSE = 30.0
"""Longest `Retry-After` of a collector that is obeyed, in seconds."""
CLOSE_SECONDS = 2.0
"""Time for the queued traces when the service closes."""
_TRY_AGAIN = frozenset({429, 502, 503, 504})

_log = structlog.get_logger("walkgraph.spans")


class SpanExporter:
    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        pauses: tuple[float, ...] = PAUSES,
    ) -> None:
        """`endpoint`: the collector's URL, with or without the path of traces."""
        base = endpoint.rstrip("/")
        self.url = base if base.endswith(PATH) else base + PATH
        self.exported = 0
        self.dropped = 0
        """Both count traces."""
        self._headers, self._transport, self._pauses = dict(headers), transport, pauses
        self._waiting: asyncio.Queue[Trace] = asyncio.Queue(WAITING)
        self._task: asyncio.Task[None] | None = None
        self._reached = True

    def start(self) -> None:
        self._task = asyncio.create_task(self._send_all(), name="spans")

    async def close(self) -> None:
        if self._task is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._waiting.join(), CLOSE_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.dropped += self._waiting.qsize()

    def offer(self, trace: Trace) -> None:
        """Queues a trace. Never waits."""
        caller = traceparent.parse(trace.parent)
        if caller is not None and not caller.sampled:
            return
        try:
            self._waiting.put_nowait(trace)
        except asyncio.QueueFull:
            self.dropped += 1

    async def _send_all(self) -> None:
        async with self._client() as client:
            while True:
                trace = await self._waiting.get()
                sent = False
                try:
                    sent = await self._sent(client, trace)
                finally:
                    self.exported += sent
                    self.dropped += not sent
                    self._waiting.task_done()

    def _client(self) -> httpx.AsyncClient:
        # Ignores the machine's proxies: they are for the outside, and a collector usually runs near the service.
        headers = {**self._headers, "Content-Type": otlp.MEDIA_TYPE}
        return httpx.AsyncClient(headers=headers, timeout=TIMEOUT, transport=self._transport, trust_env=False)

    async def _sent(self, client: httpx.AsyncClient, trace: Trace) -> bool:
        body = await anyio.to_thread.run_sync(otlp.encode, trace)
        for pause in (*self._pauses, None):
            try:
                answer = await client.post(self.url, content=body)
            except httpx.HTTPError as error:
                answer, reason = None, type(error).__name__
            else:
                reason = f"status {answer.status_code}"
                if answer.is_success:
                    self._tell(reached=True, reason="")
                    return True
            if pause is None or (answer is not None and answer.status_code not in _TRY_AGAIN):
                self._tell(reached=False, reason=reason)
                return False
            await asyncio.sleep(max(pause, _asked_pause(answer)))
        return False

    def _tell(self, *, reached: bool, reason: str) -> None:
        """Logs a change: spans are refused, or accepted again."""
        if self._reached and not reached:
            _log.warning("spans not taken", url=self.url, reason=reason)
        elif reached and not self._reached:
            _log.info("spans are taken again", url=self.url)
        self._reached = reached


def _asked_pause(answer: httpx.Response | None) -> float:
    """Seconds of a `Retry-After`, which is a number or a date; 0 without one."""
    asked = answer.headers.get("retry-after", "") if answer is not None else ""
    try:
        seconds = float(asked)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(asked).timestamp() - time.time()
        except ValueError:
            return 0.0
    return min(max(0.0, seconds), LONGEST_PAUSE) if math.isfinite(seconds) else 0.0
