"""One response of `/v1/realtime`: a run as OpenAI's events, complete and in order however the run ends."""

from collections.abc import Awaitable, Callable
from typing import Any

import pybase64

from walkgraph.errors import ErrorInfo
from walkgraph.service.http import dialects, problems
from walkgraph.service.openai.counting import is_cut, loops_of, reasons, text_tokens, tokens
from walkgraph.service.openai.realtime.events import RATE
from walkgraph.service.openai.realtime.items import Conversation, Item, Part, new_id
from walkgraph.service.openai.realtime.turn import Setting
from walkgraph.service.openai.serving import Serving
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.values import sound
from walkgraph.wire import messages as m

Tell = Callable[..., Awaitable[None]]
"""`tell(type, **fields)` sends an event."""
DELTA_BYTES = 96 * 1024
"""Audio in one event; clients accept messages of up to 1 MiB."""


class Answer:
    """The response of one run. `conversation` is None if the response is not added to it."""

    def __init__(
        self,
        tell: Tell,
        run: LiveRun,
        setting: Setting,
        serving: Serving,
        conversation: Conversation | None,
        metadata: dict[str, str] | None,
        over: Callable[[], None],
    ) -> None:
        """`over` is called just before the last event, after which the client may ask for another response."""
        self.id = new_id("resp")
        self.run = run
        self._tell_all = tell
        self._setting, self._serving = setting, serving
        self._conversation, self._metadata = conversation, metadata
        self._over = over
        self._kind = setting.modality
        self._part = Part("audio", "", bytearray()) if self._kind == "audio" else Part("text")
        self._item: Item | None = None
        self._texts = self._outside = 0
        """Texts of the run, and those of them from outside any loop."""
        self._fault: ErrorInfo | None = None
        """The error if the run's audio can't be sent."""

    async def hold(self) -> None:
        """Sends the events until the run has ended."""
        await self._tell_all("response.created", response=self._shown("in_progress"))
        async for event in self.run.follow():
            match event:
                case m.Output():
                    await self._take(event)
                case m.Finished():
                    await self._finish(event)
                case m.Accepted() | m.Asked() | m.Decided():
                    pass

    # ── outputs ─────────────────────────────────────────────────────────────────────────────────

    async def _take(self, output: m.Output) -> None:
        match output.value:
            case m.Small(value=str() as text) if output.name == self._name_of("text"):
                self._texts += 1
                self._outside += not output.iteration
                if not text:
                    return
                await self._begin()
                self._grow(text, b"")
                kind = "output_audio_transcript" if self._kind == "audio" else "output_text"
                await self._tell(f"response.{kind}.delta", delta=text)
            case m.Blob(data=data) if output.name == self._name_of("audio") and self._fault is None:
                pcm = self._heard(data)
                if pcm:
                    await self._begin()
                for at in range(0, len(pcm), DELTA_BYTES):
                    piece = pcm[at : at + DELTA_BYTES]
                    self._grow("", piece)
                    await self._tell("response.output_audio.delta", delta=pybase64.b64encode(piece).decode())
            case _:
                pass

    def _name_of(self, modality: str) -> str | None:
        found = self._serving.output_of(modality)
        return found.name if found else None

    def _heard(self, data: bytes) -> bytes:
        """PCM of an audio piece. If a session can't send its format, ends the run and returns nothing."""
        try:
            found = sound.read(data)
            if (found.rate, found.channels) != (RATE, 1):
                raise sound.BadSound(
                    f"this model's sound has {found.rate} samples a second and {found.channels} channels, and sessions "
                    f"{RATE} and one; ask for it by `POST /v1/audio/speech`"
                )
        except sound.BadSound as error:
            self._fault = error.info()
            self.run.abort("cancelled")
            return b""
        return sound.pcm(found.samples)

    def _grow(self, text: str, data: bytes) -> None:
        if self._conversation is not None:
            self._conversation.grown(self._part, text, data)
        else:
            self._part.text += text

    async def _begin(self) -> None:
        """Opens the item with the first content."""
        if self._item is not None:
            return
        self._item = Item(new_id("item"), "assistant", "in_progress")
        await self._tell_all("response.output_item.added", response_id=self.id, output_index=0, item=self._item.shown())
        if self._conversation is not None:
            before = self._conversation.insert(self._item)
            await self._tell_all("conversation.item.added", previous_item_id=before, item=self._item.shown())
        self._item.parts.append(self._part)
        await self._tell("response.content_part.added", part=self._part_shown())

    async def _tell(self, kind: str, **fields: Any) -> None:
        """Sends an event of the content part."""
        item = self._item.id if self._item else ""
        await self._tell_all(kind, response_id=self.id, item_id=item, output_index=0, content_index=0, **fields)

    def _part_shown(self) -> dict[str, Any]:
        if self._kind == "audio":
            return {"type": "audio", "transcript": self._part.text}
        return {"type": "text", "text": self._part.text}

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    async def _finish(self, end: m.Finished) -> None:
        status, details = self._ended(end)
        if self._item is not None:
            self._item.status = "completed" if status == "completed" else "incomplete"
            await self._finish_item(self._item)
        shown = self._shown(status, details, self._usage(end))
        self._over()
        await self._tell_all("response.done", response=shown)

    async def _finish_item(self, item: Item) -> None:
        if self._kind == "audio":
            await self._tell("response.output_audio.done")
            if self._name_of("text") is not None:
                await self._tell("response.output_audio_transcript.done", transcript=self._part.text)
        else:
            await self._tell("response.output_text.done", text=self._part.text)
        await self._tell("response.content_part.done", part=self._part_shown())
        if self._conversation is not None:
            ids = [known.id for known in self._conversation]
            at = ids.index(item.id)
            before = ids[at - 1] if at else None
            await self._tell_all("conversation.item.done", previous_item_id=before, item=item.shown())
        await self._tell_all("response.output_item.done", response_id=self.id, output_index=0, item=item.shown())

    def _ended(self, end: m.Finished) -> tuple[str, dict[str, Any]]:
        """(status, status details) of the response."""
        error = self._fault or end.error
        if error is None:
            spoken = self._serving.output_of("audio") if self._kind == "audio" else None
            more = {"finish_reasons": reasons(end, self._serving.output_of("text"), spoken)}
            if is_cut(loops_of(end, self._serving.output_of(self._kind))):
                return "incomplete", {"type": "incomplete", "reason": "max_output_tokens", **more}
            return "completed", {"type": "completed", **more}
        if error.code == "cancelled":
            return "cancelled", {"type": "cancelled", "reason": "client_cancelled"}
        told = dialects.openai_error(problems.said_of_run(error))["error"]
        return "failed", {"type": "failed", "error": {key: told[key] for key in ("type", "code", "message")}}

    def _usage(self, end: m.Finished) -> dict[str, Any]:
        written = self._serving.output_of("text")
        text, loops = text_tokens(end, written, self._texts, self._outside), loops_of(end, written)
        heard = [one for one in loops_of(end, self._serving.output_of("audio")) if one not in loops]
        made = text + tokens(heard, self._serving.begun) if self._kind == "audio" else text
        return {
            "total_tokens": end.read + made,
            "input_tokens": end.read,
            "output_tokens": made,
            "input_token_details": {"cached_tokens": end.found},
            "output_token_details": {"text_tokens": text, "audio_tokens": made - text},
        }

    def _shown(self, status: str, details: Any = None, usage: Any = None) -> dict[str, Any]:
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": status,
            "status_details": details,
            "output": [] if self._item is None else [self._item.shown()],
            "conversation_id": self._conversation.id if self._conversation else None,
            **self._setting.shown(self._serving),
            "usage": usage,
            "metadata": self._metadata,
        }
