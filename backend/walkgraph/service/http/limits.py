"""Limits on what a caller may send, in one table served at `/v1/limits`."""

from walkgraph.graph.reading import guard
from walkgraph.store import keys

BODY_BYTES = 32 * 1024 * 1024
BODY_SECONDS = 15.0
"""Time for the whole body of a request."""
FORM_BYTES = 64 * 1024 * 1024
"""Size of a `multipart/form-data` body, on routes that accept one."""
FORM_SECONDS = 60.0
"""Time for the whole form. Forms hold media, which may come over slow connections."""
FORM_FILES = 256
FORM_FIELDS = 256
"""Parts without a file name."""
FORM_FIELD_BYTES = 4 * 1024 * 1024
"""The most bytes that `TEXT_CHARACTERS` characters take in UTF-8."""
FORM_HEADERS = 8
"""Headers of one part."""
FORM_HEADER_BYTES = 4 * 1024
HEADER_BYTES = 32 * 1024
HEADER_FIELDS = 100
HEAD_SECONDS = 15.0
"""Time for a request's head to arrive, from its first byte or from the opening of the connection."""
STALL_SECONDS = 60.0
"""A connection is aborted after its client has read none of the waiting bytes for so long."""
PROBE_SECONDS = 4
"""Silence of a client before the kernel's first keepalive probe, and time between probes."""
PROBES = 3
"""Unanswered probes after which the client counts as gone: after 16 s, slightly later with unacknowledged bytes."""
CONNECTIONS = 10_000
"""Open connections; fewer if the process may open fewer files. Beyond it, a new one replaces the longest idle one."""
SPARE_FILES = 256
"""Files that are reserved for things other than connections."""
JSON_DEPTH = 64
JSON_VALUES = 200_000
TEXT_CHARACTERS = 1024 * 1024
"""Length of one string that isn't encoded media."""
DOCUMENT_BYTES = guard.MAX_BYTES
IMAGES = 16
"""Pictures of one request to edit pictures."""
MEDIA = 128
"""Pictures, sounds, videos and files of one request, with those of earlier turns that it sends again."""
PARTS = 256
TURNS = 1024
"""Turns of one conversation."""
CONVERSATION_PARTS = 4096
"""Parts of all turns of one conversation."""
CONVERSATION_BYTES = 32 * 1024 * 1024
"""Total size of the texts, media and tool calls of one conversation."""
TOOL_CALLS = 128
"""Tool calls of one turn."""
NAME_CHARACTERS = 256
"""Length of the id and the name of a tool call."""
WS_FRAME_BYTES = 1024 * 1024
"""A task's first message may hold small media (larger ones go by POST); later ones, and those of other sockets, hold
`WS_MESSAGE_BYTES`."""
WS_MESSAGE_BYTES = 64 * 1024
WS_CLIENTS = 1000
WS_FRAMES = 64
"""Binary frames that may follow one message. Each has at most `WS_FRAME_BYTES`, the limit of any WebSocket frame."""
WS_FRAMES_BYTES = 16 * 1024 * 1024
"""Total size of the frames of one message."""
TENSOR_DIMENSIONS = 8
"""Dimensions of a tensor that a client sends."""
WS_SESSION_RUNS = 32
"""Concurrent requests on one session's socket."""
WS_HELLO_SECONDS = 10.0
WS_CLOSE_SECONDS = 10.0
"""Time between the end of a WebSocket and that of its connection, if the client doesn't close it."""
WS_PING_SECONDS = 8.0
"""Time between two pings; the client must answer each within `WS_PONG_SECONDS`."""
WS_PONG_SECONDS = 10.0
WS_QUIET_SECONDS = 0.5
"""Silence after which the connection of a client that broke the protocol is closed."""
TELEMETRY_BUFFER_BYTES = 512 * 1024
"""Buffer of one client; what does not fit is dropped and counted. Including its socket, a client that reads nothing
holds less than 1 MiB."""
WS_SEND_BYTES = 128 * 1024
"""Kernel send buffer of a WebSocket. The kernel doubles it for bookkeeping; by default it would grow to 4 MiB."""
TELEMETRY_STALL_SECONDS = 30.0
RUN_OUTPUT_BYTES = 256 * 1024 * 1024
"""Outputs of one run, kept for the clients that follow it."""
KEPT_OUTPUT_BYTES = 512 * 1024 * 1024
"""Outputs of all finished runs that can still be followed."""
KEPT_RUNS = 200
TAPS = 16
"""Taps per deployment."""
BREAKPOINTS = 32
"""Breakpoints per deployment."""
ASKED_BYTES = 16 * 1024 * 1024
"""Size of a request that is kept to replay its run, as long as the run can be followed."""
ASKED_VALUE_BYTES = 4 * 1024 * 1024
"""Size of one value in a kept request; larger values are left out."""
KEPT_ASKED_BYTES = 128 * 1024 * 1024
"""Total size of kept requests; beyond it, the oldest are dropped."""
IDEMPOTENCY_SECONDS = 600.0
"""How long an `Idempotency-Key` stands for the runs of its first request."""
IDEMPOTENCY_KEYS = 10_000
"""Keys of all callers; beyond it, the oldest are dropped."""
IDEMPOTENCY_BYTES = 64 * 1024 * 1024
"""Outputs of finished runs that are kept for those keys; beyond it, the oldest are dropped."""

REALTIME_ITEMS = 256
"""Items of one conversation over `/v1/realtime`."""
REALTIME_BUFFER_BYTES = 16 * 1024 * 1024
"""Audio that was appended and not yet committed: five and a half minutes at 24 kHz."""
REALTIME_BYTES = 64 * 1024 * 1024
"""Total size of the audio, images and texts of one conversation."""

CALL_BYTES = 64 * 1024 * 1024
"""Values that a node passes to a task, and those that it takes from it."""

CALL_OUT_SECONDS = 300.0
"""The longest time of a node's call of a server outside."""

WAITING_RUNS = 100
"""Runs of one key that wait for a person."""
WAITING_RUN_BYTES = 64 * 1024 * 1024
"""Outputs, inputs and kept values of one of them."""
WAITING_BYTES = 256 * 1024 * 1024
"""The same of all those of one key."""
NOTE_CHARACTERS = 4000
"""Length of a person's note."""

TABLE: dict[str, float] = {
    "body_bytes": BODY_BYTES,
    "body_seconds": BODY_SECONDS,
    "form_bytes": FORM_BYTES,
    "form_seconds": FORM_SECONDS,
    "form_files": FORM_FILES,
    "form_fields": FORM_FIELDS,
    "form_field_bytes": FORM_FIELD_BYTES,
    "form_headers": FORM_HEADERS,
    "form_header_bytes": FORM_HEADER_BYTES,
    "header_bytes": HEADER_BYTES,
    "header_fields": HEADER_FIELDS,
    "head_seconds": HEAD_SECONDS,
    "stall_seconds": STALL_SECONDS,
    "connections": CONNECTIONS,
    "json_depth": JSON_DEPTH,
    "json_values": JSON_VALUES,
    "text_characters": TEXT_CHARACTERS,
    "document_bytes": DOCUMENT_BYTES,
    "document_values": guard.MAX_VALUES,
    "edges": guard.MAX_EDGES,
    "items": guard.MAX_ITEMS,
    "items_of_one": guard.MAX_ITEMS_OF_ONE,
    "nesting": guard.MAX_NESTING,
    **guard.LIMITS,
    "images": IMAGES,
    "media": MEDIA,
    "parts": PARTS,
    "turns": TURNS,
    "conversation_parts": CONVERSATION_PARTS,
    "conversation_bytes": CONVERSATION_BYTES,
    "tool_calls": TOOL_CALLS,
    "name_characters": NAME_CHARACTERS,
    "websocket_frame_bytes": WS_FRAME_BYTES,
    "websocket_message_bytes": WS_MESSAGE_BYTES,
    "websocket_frames": WS_FRAMES,
    "websocket_frames_bytes": WS_FRAMES_BYTES,
    "tensor_dimensions": TENSOR_DIMENSIONS,
    "websocket_clients": WS_CLIENTS,
    "websocket_session_runs": WS_SESSION_RUNS,
    "telemetry_buffer_bytes": TELEMETRY_BUFFER_BYTES,
    "telemetry_stall_seconds": TELEMETRY_STALL_SECONDS,
    "run_output_bytes": RUN_OUTPUT_BYTES,
    "request_kept_bytes": ASKED_BYTES,
    "request_kept_value_bytes": ASKED_VALUE_BYTES,
    "realtime_items": REALTIME_ITEMS,
    "realtime_buffer_bytes": REALTIME_BUFFER_BYTES,
    "realtime_bytes": REALTIME_BYTES,
    "call_bytes": CALL_BYTES,
    "call_out_seconds": CALL_OUT_SECONDS,
    "waiting_runs": WAITING_RUNS,
    "waiting_run_bytes": WAITING_RUN_BYTES,
    "waiting_bytes": WAITING_BYTES,
    "note_characters": NOTE_CHARACTERS,
    "keys": keys.MAX_KEYS,
    "taps": TAPS,
    "breakpoints": BREAKPOINTS,
    "idempotency_seconds": IDEMPOTENCY_SECONDS,
    "idempotency_keys": IDEMPOTENCY_KEYS,
    "idempotency_bytes": IDEMPOTENCY_BYTES,
}
