"""`/v1/realtime`: OpenAI's conversation over a WebSocket, in turns. Errors are events; the socket stays open."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from walkgraph.errors import RunFailed, WalkgraphError
from walkgraph.service.http import body, dialects, limits, problems
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.openai.realtime import events as e
from walkgraph.service.openai.realtime import turn
from walkgraph.service.openai.realtime.answer import Answer
from walkgraph.service.openai.realtime.items import Buffer, Conversation, Item, Part, new_id, pcm_of, read_item
from walkgraph.service.openai.serving import Resolved
from walkgraph.service.runs import streaming
from walkgraph.service.runs.runs import LiveRun

Submit = Callable[[Resolved, dict[str, Any]], LiveRun]
"""Starts the run of a request. Raises WalkgraphError if the request is refused."""


class Session:
    """One socket, one conversation."""

    def __init__(self, socket: WebSocket, resolve: Callable[[], Resolved], submit: Submit) -> None:
        """`resolve` finds the model by its name; the result may change while the socket is open. Raises
        WalkgraphError."""
        self._socket, self._resolve, self._submit = socket, resolve, submit
        self._found = resolve()
        self._setting = turn.Setting.of(self._found.serving)
        self._id = new_id("sess")
        self._told = 0
        self._sending = asyncio.Lock()
        self._conversation = Conversation()
        self._buffer = Buffer()
        self._answer: Answer | None = None
        self._answering: asyncio.Task[None] | None = None

    async def hold(self) -> None:
        """Serves the client until it leaves, then ends its run."""
        await self._tell("session.created", session=self._shown())
        try:
            while True:
                await self._take(await self._socket.receive())
        except WebSocketDisconnect:
            pass
        finally:
            if self._answer is not None:
                self._answer.run.abort("disconnected")
            if self._answering is not None:
                self._answering.cancel()
                await asyncio.gather(self._answering, return_exceptions=True)

    async def leave(self, closing: asyncio.Event) -> None:
        """Waits until the service closes, then notifies the client, lets its response finish, and closes the socket."""
        await closing.wait()
        told = dialects.openai_error(problems.said_of(RunFailed(streaming.CLOSING)))["error"]
        await self._tell("error", error={**told, "event_id": None})
        if self._answering is not None:
            await asyncio.wait([self._answering])
        await streaming.close(self._socket, streaming.CLOSE_RESTARTS)

    async def _take(self, received: Any) -> None:
        """Handles one message. Raises WebSocketDisconnect at the end."""
        if received["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(received.get("code", 1000))
        message: Any = None
        try:
            text: str | None = received.get("text")
            if text is None:
                raise body.BadJson("send events as JSON in text messages")
            message = body.parse(text, limits.WS_FRAME_BYTES)
            await self._obey(e.read(message))
        except WalkgraphError as error:
            told = dialects.openai_error(problems.said_of(error))["error"]
            await self._tell("error", error={**told, "event_id": e.event_id(message)})

    async def _obey(self, event: e.Event) -> None:
        match event:
            case e.Append():
                self._buffer.append(pcm_of(event.audio, "/audio"))
            case e.SessionUpdate():
                self._setting = self._setting.updated(event.session, self._found.serving, "/session")
                await self._tell("session.updated", session=self._shown())
            case e.ItemCreate():
                item = read_item(event.item, self._found.serving.heard, "/item")
                turn.check_item(item, self._found.serving, "/item")
                await self._add(item, event.previous_item_id)
            case e.ResponseCreate():
                await self._respond(event.response or e.ResponseAsked())
            case e.ResponseCancel():
                self._cancel(event.response_id)
            case e.ItemNamed(type="conversation.item.delete"):
                self._conversation.delete(event.item_id)
                await self._tell("conversation.item.deleted", item_id=event.item_id)
            case e.ItemNamed():
                found = self._conversation.get(event.item_id, "item_retrieve_invalid_item_id")
                await self._tell("conversation.item.retrieved", item=found.shown(whole=True))
            case _ if event.type == "input_audio_buffer.commit":
                await self._commit()
            case _:
                self._buffer.clear()
                await self._tell("input_audio_buffer.cleared")

    async def _commit(self) -> None:
        if "audio" not in self._found.serving.heard:
            raise e.wrong("", "this model takes no audio; send `conversation.item.create` with `input_text`")
        item = Item(new_id("item"), "user", "completed", [Part("audio", "", self._buffer.take())])
        before = self._conversation.add(item)
        await self._tell("input_audio_buffer.committed", previous_item_id=before, item_id=item.id)
        await self._tell_added(item, before)

    async def _add(self, item: Item, after: str | None) -> None:
        await self._tell_added(item, self._conversation.add(item, after))

    async def _tell_added(self, item: Item, before: str | None) -> None:
        await self._tell("conversation.item.added", previous_item_id=before, item=item.shown())
        await self._tell("conversation.item.done", previous_item_id=before, item=item.shown())

    # ── responses ───────────────────────────────────────────────────────────────────────────────

    async def _respond(self, asked: e.ResponseAsked) -> None:
        if self._answer is not None:
            message = f"the response `{self._answer.id}` is under way; wait for `response.done`, or cancel it"
            raise e.wrong("", message, "conversation_already_has_active_response")
        found = self._found = self._resolve()
        setting = self._setting.updated(asked, found.serving, "/response")
        items = turn.taken(self._conversation, found.serving) if asked.input is None else self._given(asked.input)
        if asked.conversation != "none":
            self._conversation.check_room(0, 1)
        request = turn.body_of(items, setting, found.serving, self._conversation.id)
        try:
            run = self._submit(found, request)
        except Unprocessable as error:
            raise turn.in_realtime_terms(error, found.serving, "/response") from None
        conversation = None if asked.conversation == "none" else self._conversation
        self._answer = Answer(self._tell, run, setting, found.serving, conversation, asked.metadata, self._over)
        self._answering = asyncio.create_task(self._answer.hold())

    def _given(self, items: Sequence[e.Reference | e.ItemAsked]) -> list[Item]:
        """The items of a response whose input is not the last turn."""
        found: list[Item] = []
        for i, given in enumerate(items):
            at = f"/response/input/{i}"
            if isinstance(given, e.Reference):
                found.append(self._conversation.get(given.id, "bad_value", f"{at}/id"))
                continue
            item = read_item(given, self._found.serving.heard, at)
            turn.check_item(item, self._found.serving, at)
            self._conversation.check_room(item.bytes)
            found.append(item)
        return found

    def _over(self) -> None:
        self._answer = None

    def _cancel(self, id_: str | None) -> None:
        if self._answer is None or id_ not in (None, self._answer.id):
            at = "" if id_ is None else "/response_id"
            raise e.wrong(at, "there is no such response under way", "response_cancel_not_active")
        self._answer.run.abort("cancelled")

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def _shown(self) -> dict[str, Any]:
        return turn.session_shown(self._id, self._found.model, self._setting, self._found.serving)

    async def _tell(self, kind: str, **fields: Any) -> None:
        async with self._sending:
            self._told += 1
            event = {"type": kind, "event_id": f"event_{self._id[5:]}_{self._told}", **fields}
            with contextlib.suppress(WebSocketDisconnect):
                await streaming.send_json(self._socket, event)
