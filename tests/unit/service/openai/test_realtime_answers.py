"""Turns of a realtime conversation: what goes to the model, and its answer in OpenAI's events, in their order."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.listening import heard
from tests.unit.service.openai.talking import LOOK, PCM, PICTURE, SAMPLES, SPEAK, TALK, Peer, talking, text, wav
from walkgraph.errors import ErrorInfo, Overloaded
from walkgraph.service.http import limits
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.openai.realtime.items import Buffer, Conversation, Item, Part
from walkgraph.service.openai.serving import Serving
from walkgraph.wire import messages as m


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


# ── what a model is sent ────────────────────────────────────────────────────────────────────────


async def test_a_turn_goes_in_its_order() -> None:
    async with talking() as peer:
        await peer.say(text("Look:"), {"type": "input_image", "image_url": PICTURE, "detail": "low"})
        for _ in range(2):
            await peer.send("input_audio_buffer.append", audio=PCM)
        await peer.send("input_audio_buffer.commit")
        committed, added, done = await peer.until("conversation.item.done")
        assert committed["item_id"] == added["item"]["id"] == done["item"]["id"]
        assert committed["previous_item_id"] == added["previous_item_id"] is not None
        assert added["item"]["content"] == [{"type": "input_audio", "transcript": None}]
        run = await peer.respond(output_modalities=["text"])
        parts = run.body["inputs"]["parts"]
        assert [part["type"] for part in parts] == ["text", "image", "audio"]
        samples, rate = heard(parts[2]["data"])
        assert rate == 24000
        assert np.array_equal(samples[:, 0], np.concatenate([SAMPLES, SAMPLES]))
        assert run.body["outputs"] == ["text"]
        assert "speaker" not in run.body["params"]
        run.end()
        await peer.until("response.done")


async def test_a_speaker_reads_the_texts_of_a_turn() -> None:
    async with talking(SPEAK) as peer:
        await peer.say(text("One."), text("Two."))
        await peer.say(text("Three."))
        run = await peer.respond(max_output_tokens=70, voice="leo")
        assert run.body["inputs"] == {"text": "One.\nTwo.\nThree."}
        assert run.body["params"] == {"voice": "leo", "max_tokens": 70}
        run.say(sound=wav(100))
        run.end()
        await peer.until("response.done")
        await peer.say(text("Four."))
        assert (await peer.respond()).body["inputs"] == {"text": "Four."}


async def test_system_items_are_told_with_the_instructions() -> None:
    async with talking() as peer:
        item = {"type": "message", "role": "system", "content": [text("It rains.")]}
        await peer.send("conversation.item.create", item=item)
        await peer.until("conversation.item.done")
        await peer.say(text("Hello"))
        run = await peer.respond(instructions="Be sad.")
        assert run.body["params"]["system_prompt"] == "Be sad.\nIt rains."


async def test_a_response_may_be_to_something_else() -> None:
    async with talking(LOOK) as peer:
        item = await peer.say({"type": "input_image", "image_url": PICTURE})
        run = await peer.respond()
        run.say("a circle")
        run.end()
        await peer.until("response.done")
        reference = {"type": "item_reference", "id": item["id"]}
        more = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]}
        run = await peer.respond(input=[reference, more], conversation="none", metadata={"topic": "shapes"})
        assert len(run.body["inputs"]["parts"]) == 2
        run.say("two")
        run.end()
        events = await peer.until("response.done")
        assert "conversation.item.added" not in kinds(events)
        response = events[-1]["response"]
        assert (response["conversation_id"], response["metadata"]) == (None, {"topic": "shapes"})
        error = await peer.asked("response.create", response={"input": [{"type": "item_reference", "id": "item_x"}]})
        assert error["error"]["param"] == "response.input[0].id"


async def test_a_task_that_keeps_a_session_is_told_what_is_new() -> None:
    session = {"states": {}, "ttl": 60.0}
    kept = TALK.task.model_copy(update={"session": session})
    async with talking(Serving("chat", kept, TALK.outputs)) as peer:
        names: list[str] = []
        for words in ("Hello", "And now?"):
            await peer.say(text(words))
            run = await peer.respond()
            names.append(run.body["session"])
            assert [part["text"] for part in run.body["inputs"]["parts"]] == [words]
            run.say("Yes.")
            run.end()
            await peer.until("response.done")
        assert len(set(names)) == 1


# ── what is answered ────────────────────────────────────────────────────────────────────────────

SPOKEN = [
    "output_item.added",
    "conversation.item.added",
    "content_part.added",
    "output_audio_transcript.delta",
    "output_audio.delta",
    "output_audio_transcript.delta",
    "output_audio.delta",
    "output_audio.done",
    "output_audio_transcript.done",
    "content_part.done",
    "conversation.item.done",
    "output_item.done",
    "done",
]


async def test_sound_and_what_it_says_come_in_order() -> None:
    loops = (
        m.LoopEnd(walk="decode", loop="answer", iterations=7, reason="stop"),
        m.LoopEnd(walk="speak", loop="frames", iterations=20, reason="stop"),
    )
    async with talking() as peer:
        asked = await peer.say(text("Hello"))
        run = await peer.respond()
        for words, at in (("Good ", ()), ("day.", (0,))):
            run.say(words, wav(300), at)
        run.end(loops=loops)
        events = await peer.until("response.done")
        assert kinds(events) == SPOKEN
        deltas = [event["delta"] for event in events if event["type"] == "response.output_audio.delta"]
        assert b"".join(map(base64.b64decode, deltas)) == np.ones(600, "<i2").tobytes()
        response = events[-1]["response"]
        assert response["status"] == "completed"
        [item] = response["output"]
        assert item["content"] == [{"type": "output_audio", "transcript": "Good day."}]
        assert response["usage"]["input_tokens"] == 30
        # The first token comes before the loop of the others.
        assert response["usage"]["output_tokens"] == 28
        assert response["usage"]["input_token_details"] == {"cached_tokens": 10}
        assert response["usage"]["output_token_details"] == {"text_tokens": 8, "audio_tokens": 20}
        assert events[1]["previous_item_id"] == asked["id"]
        whole = await peer.asked("conversation.item.retrieve", item_id=item["id"])
        assert base64.b64decode(whole["item"]["content"][0]["audio"]) == np.ones(600, "<i2").tobytes()
        ids = [event["event_id"] for event in events]
        assert len(set(ids)) == len(ids)


async def test_a_text_comes_in_order() -> None:
    async with talking() as peer:
        await peer.say(text("Hello"))
        run = await peer.respond(output_modalities=["text"])
        run.say("Good ")
        run.say("day.")
        run.end()
        events = await peer.until("response.done")
    wanted = [kind.replace("audio_transcript", "text") for kind in SPOKEN if "output_audio." not in kind]
    assert kinds(events) == wanted
    assert events[-1]["response"]["output"][0]["content"] == [{"type": "output_text", "text": "Good day."}]


async def test_long_sound_is_cut_into_messages_that_clients_take() -> None:
    async with talking(SPEAK) as peer:
        await peer.say(text("Hello"))
        run = await peer.respond()
        run.say(sound=wav(600_000))
        run.end()
        events = await peer.until("response.done")
    deltas = [event for event in events if event["type"] == "response.output_audio.delta"]
    assert sum(len(base64.b64decode(event["delta"])) for event in deltas) == 1_200_000
    assert max(len(json.dumps(event)) for event in events) < 256 * 1024


async def test_a_second_response_waits_for_the_first() -> None:
    async with talking() as peer:
        await peer.say(text("Hello"))
        run = await peer.respond()
        error = await peer.asked("response.create", event_id="again")
        assert error["error"]["code"] == "conversation_already_has_active_response"
        assert error["error"]["event_id"] == "again"
        run.say("Yes.")
        run.end()
        await peer.until("response.done")
        assert (await peer.asked("response.create"))["error"]["code"] == "missing_required_parameter"


async def test_a_cancelled_response_ends_with_what_was_said() -> None:
    async with talking() as peer:
        await peer.say(text("Hello"))
        run = await peer.respond()
        run.say("Good ")
        await peer.until("response.output_audio_transcript.delta")
        error = await peer.asked("response.cancel", response_id="resp_x")
        assert error["error"]["param"] == "response_id"
        await peer.send("response.cancel")
        events = await peer.until("response.done")
        assert kinds(events) == SPOKEN[SPOKEN.index("output_audio.done") :]
        response = events[-1]["response"]
        assert response["status"] == "cancelled"
        assert response["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
        assert response["output"][0]["status"] == "incomplete"


async def test_a_failed_run_is_a_failed_response() -> None:
    async with talking() as peer:
        await peer.say(text("Hello"))
        run = await peer.respond()
        run.end(ErrorInfo(code="worker_lost", message="a worker is gone; try again", retryable=True))
        [done] = await peer.until("response.done")
        assert done["response"]["output"] == []
        error = {"type": "server_error", "code": "worker_lost", "message": "a worker is gone; try again"}
        assert done["response"]["status_details"] == {"type": "failed", "error": error}
        peer.refuse = Overloaded("too much is under way; try again")
        error = (await peer.asked("response.create"))["error"]
        assert (error["type"], error["code"]) == ("server_error", "overloaded")


async def test_a_bound_that_ends_an_answer_is_told() -> None:
    for found, loop in ((TALK, ("decode", "answer")), (TALK, ("speak", "frames")), (SPEAK, ("decode", "tokens"))):
        async with talking(found) as peer:
            await peer.say(text("Hello"))
            run = await peer.respond()
            run.say("Good", wav(10))
            run.end(loops=(m.LoopEnd(walk=loop[0], loop=loop[1], iterations=9, reason="bound"),))
            response = (await peer.until("response.done"))[-1]["response"]
            assert response["status"] == "incomplete"
            assert "bound" in response["status_details"]["finish_reasons"].values()
            assert response["status_details"]["reason"] == "max_output_tokens"


@pytest.mark.parametrize("data", [wav(10, 16000), wav(10, channels=2), b"no sound"])
async def test_sound_that_a_session_cannot_have_fails_the_response(data: bytes) -> None:
    async with talking(SPEAK) as peer:
        await peer.say(text("Hello"))
        run = await peer.respond()
        run.say(sound=data)
        [done] = await peer.until("response.done")
        assert done["response"]["status"] == "failed"
        assert done["response"]["status_details"]["error"]["code"] == "node_error"
        assert any(isinstance(message, m.Abort) for message in run.sent)


async def test_a_client_that_leaves_ends_its_run() -> None:
    async with talking() as peer:
        await peer.say(text("Hello"))
        run = await peer.respond()
    assert [message.reason for message in run.sent] == ["disconnected"]


async def test_a_refusal_of_the_task_is_told_at_the_responses_fields() -> None:
    async with talking(SPEAK) as peer:
        await peer.say(text("Hello"))
        error = await peer.asked("response.create", response={"max_output_tokens": 5, "temperature": 9})
        assert error["error"]["param"] in ("response.temperature", "response.max_output_tokens")
        assert "35 or more" in error["error"]["message"]
        assert "2 or less" in error["error"]["message"]


# ── items ───────────────────────────────────────────────────────────────────────────────────────


async def test_items_are_inserted_deleted_and_shown() -> None:
    async with talking() as peer:
        first = await peer.say(text("b"))
        await peer.send(
            "conversation.item.create",
            previous_item_id="root",
            item={"id": "item_mine", "type": "message", "role": "user", "content": [text("a")]},
        )
        added = (await peer.until("conversation.item.done"))[0]
        assert (added["item"]["id"], added["previous_item_id"]) == ("item_mine", None)
        again = {"id": "item_mine", "type": "message", "role": "user", "content": [text("c")]}
        assert (await peer.asked("conversation.item.create", item=again))["error"]["param"] == "item.id"
        told = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
        await peer.send("conversation.item.create", item=told, previous_item_id="item_mine")
        await peer.until("conversation.item.done")
        run = await peer.respond()
        assert [part["text"] for part in run.body["inputs"]["parts"]] == ["b"]
        run.say("Yes.")
        answer = (await peer.until("response.output_audio_transcript.delta"))[0]["item"]["id"]
        assert (await peer.asked("conversation.item.delete", item_id=answer))["type"] == "error"
        run.end()
        await peer.until("response.done")
        for id_ in (first["id"], answer):
            deleted = await peer.asked("conversation.item.delete", item_id=id_)
            assert (deleted["type"], deleted["item_id"]) == ("conversation.item.deleted", id_)
        shown = await peer.asked("conversation.item.retrieve", item_id="item_mine")
        assert shown["item"]["content"] == [{"type": "input_text", "text": "a"}]


async def _picture(peer: Peer) -> dict[str, Any]:
    item = await peer.say({"type": "input_image", "image_url": PICTURE})
    return (await peer.asked("conversation.item.retrieve", item_id=item["id"]))["item"]


async def test_pictures_and_sounds_come_back_when_they_are_asked_for() -> None:
    async with talking() as peer:
        assert (await _picture(peer))["content"] == [{"type": "input_image", "image_url": PICTURE}]
        sound = {"type": "input_audio", "audio": PCM, "transcript": "counting"}
        item = await peer.say(sound)
        assert item["content"] == [{"type": "input_audio", "transcript": "counting"}]
        whole = await peer.asked("conversation.item.retrieve", item_id=item["id"])
        assert whole["item"]["content"] == [sound]


def test_a_conversation_has_bounds() -> None:
    found = Conversation()
    for i in range(limits.REALTIME_ITEMS):
        found.add(Item(f"item_{i}", "user", parts=[Part("text", "x")]))
    with pytest.raises(Unprocessable, match="256 items"):
        found.add(Item("more", "user"))
    found.delete("item_3")
    with pytest.raises(Unprocessable, match="bytes"):
        found.add(Item("large", "user", parts=[Part("audio", "", bytes(limits.REALTIME_BYTES))]))
    answer = Part("audio", "", bytearray())
    found.insert(Item("answer", "assistant", parts=[answer]))
    found.grown(answer, "a", bytes(100))
    found.grown(answer, "b", bytes(limits.REALTIME_BYTES))
    assert (answer.text, len(answer.data)) == ("ab", 100)


def test_a_buffer_has_bounds() -> None:
    found = Buffer()
    found.append(bytes(limits.REALTIME_BUFFER_BYTES - 1))
    with pytest.raises(Unprocessable, match="may wait"):
        found.append(b"ab")
    assert len(found.take()) == limits.REALTIME_BUFFER_BYTES - 1


@given(st.lists(st.tuples(st.sampled_from(["add", "delete", "answer"]), st.integers(0, 5), st.integers(0, 50))))
def test_a_conversation_counts_what_it_holds(steps: list[tuple[str, int, int]]) -> None:
    """Against a plain list."""
    found, naive = Conversation(), list[tuple[str, int]]()
    for number, (what, at, size) in enumerate(steps):
        if what == "delete" and naive:
            found.delete(naive.pop(at % len(naive))[0])
        elif what != "delete":
            role: Any = "assistant" if what == "answer" else "user"
            after = naive[at % len(naive)][0] if naive and at else "root"
            before = found.add(Item(f"i{number}", role, parts=[Part("text", "x" * size)]), after)
            place = next((k + 1 for k, (id_, _) in enumerate(naive) if id_ == after), 0)
            assert before == (naive[place - 1][0] if place else None)
            naive.insert(place, (f"i{number}", size))
    assert [item.id for item in found] == [id_ for id_, _ in naive]
    with pytest.raises(Unprocessable):
        found.check_room(limits.REALTIME_BYTES - sum(size for _, size in naive) + 1)
    found.check_room(limits.REALTIME_BYTES - sum(size for _, size in naive))
