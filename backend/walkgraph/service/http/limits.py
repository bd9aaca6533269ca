"""What a caller may send at most: one table, served at `/v1/limits`."""

from walkgraph.graph.reading import guard
from walkgraph.store import keys

BODY_BYTES = 32 * 1024 * 1024
BODY_SECONDS = 15.0
"""For all of a request's body."""
FORM_BYTES = 64 * 1024 * 1024
"""Of a body of `multipart/form-data`, where one is taken."""
FORM_SECONDS = 60.0
"""For all of it: it holds media, which come over slower lines than they are made."""
FORM_FILES = 256
FORM_FIELDS = 256
"""Parts without a file name."""
FORM_FIELD_BYTES = 4 * 1024 * 1024
"""As many as `TEXT_CHARACTERS` can have."""
FORM_HEADERS = 8
"""Of one part."""
FORM_HEADER_BYTES = 4 * 1024
HEADER_BYTES = 32 * 1024
HEADER_FIELDS = 100
HEAD_SECONDS = 15.0
"""Until a request's head is whole, from its first byte, or from the connection."""
STALL_SECONDS = 60.0
"""In which a client takes none of the bytes that wait for it, until its connection is aborted."""
PROBE_SECONDS = 4
"""Without a word of a client, until the kernel asks whether it is there, and between two such questions."""
PROBES = 3
"""That are not answered, until the client is held for gone: after 16 s, or a little more with bytes under way."""
CONNECTIONS = 10_000
"""At once; fewer where the process may open fewer files. Of more, the longest idle one is closed for the new one."""
SPARE_FILES = 256
"""Of those that the process may open, kept for other things than connections."""
JSON_DEPTH = 64
JSON_VALUES = 200_000
TEXT_CHARACTERS = 1024 * 1024
"""Of one string that isn't encoded media."""
DOCUMENT_BYTES = guard.MAX_BYTES
IMAGES = 16
PARTS = 256
WS_FRAME_BYTES = 1024 * 1024
"""A task's first message may hold small media (larger ones go by POST); later ones, and those of other sockets, hold
`WS_MESSAGE_BYTES`."""
WS_MESSAGE_BYTES = 64 * 1024
WS_CLIENTS = 1000
WS_FRAMES = 64
"""Binary frames that may follow one message; each is at most `WS_FRAME_BYTES`, as all that a socket is sent."""
WS_FRAMES_BYTES = 16 * 1024 * 1024
"""Of all frames of one message."""
TENSOR_DIMENSIONS = 8
"""Of a tensor that a client sends."""
WS_SESSION_RUNS = 32
"""Requests of one session's socket that may be under way."""
WS_HELLO_SECONDS = 10.0
WS_CLOSE_SECONDS = 10.0
"""Between the end of a WebSocket and that of its connection, where the client doesn't end it."""
WS_PING_SECONDS = 8.0
"""Between two questions to a client, each of which it has to answer within `WS_PONG_SECONDS`."""
WS_PONG_SECONDS = 10.0
WS_QUIET_SECONDS = 0.5
"""Without a word of a client that broke the protocol, until its connection is closed."""
TELEMETRY_BUFFER_BYTES = 512 * 1024
"""Of one client; what does not fit is dropped and counted. With what lies in its socket a client that takes nothing
holds less than a MiB."""
WS_SEND_BYTES = 128 * 1024
"""Of a WebSocket's kernel buffer, which keeps the books of as much again; by itself it would grow to 4 MiB."""
TELEMETRY_STALL_SECONDS = 30.0
RUN_OUTPUT_BYTES = 256 * 1024 * 1024
"""Of one run, kept for whoever follows it."""
KEPT_OUTPUT_BYTES = 512 * 1024 * 1024
"""Of all finished runs that can still be followed."""
KEPT_RUNS = 200
TAPS = 16
"""Of one deployment."""
BREAKPOINTS = 32
"""Likewise."""
ASKED_BYTES = 16 * 1024 * 1024
"""Of one run's request, kept for as long as the run can be followed, to replay it."""
ASKED_VALUE_BYTES = 4 * 1024 * 1024
"""Of one of its values; larger ones are left out."""
KEPT_ASKED_BYTES = 128 * 1024 * 1024
"""Of all runs that can be followed; of more, the oldest requests are forgotten."""
IDEMPOTENCY_SECONDS = 600.0
"""How long a request that is sent again with its `Idempotency-Key` gets the runs of the first."""
IDEMPOTENCY_KEYS = 10_000
"""Of all callers; of more, the oldest are forgotten."""
IDEMPOTENCY_BYTES = 64 * 1024 * 1024
"""Of outputs of runs that have ended, kept for them; likewise."""

REALTIME_ITEMS = 256
"""Of one conversation over `/v1/realtime`."""
REALTIME_BUFFER_BYTES = 16 * 1024 * 1024
"""Of sound that was appended and not committed: five minutes and a half of 24 kHz."""
REALTIME_BYTES = 64 * 1024 * 1024
"""Of a conversation's sounds, pictures and texts."""

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
    "nesting": guard.MAX_NESTING,
    **guard.LIMITS,
    "images": IMAGES,
    "parts": PARTS,
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
    "keys": keys.MAX_KEYS,
    "taps": TAPS,
    "breakpoints": BREAKPOINTS,
    "idempotency_seconds": IDEMPOTENCY_SECONDS,
    "idempotency_keys": IDEMPOTENCY_KEYS,
    "idempotency_bytes": IDEMPOTENCY_BYTES,
}
