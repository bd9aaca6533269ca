"""The component `http.request`: parameters and inputs of a call -> a request, its answer -> outputs."""

import json
from typing import Literal

from walkgraph.errors import InvalidInput
from walkgraph.media_types import mime_of
from walkgraph.servers import Url, header_lines, parse_url
from walkgraph.service.http import limits
from walkgraph.service.outward.exchange import CallOutFailed, Incoming, Outgoing, Outside
from walkgraph.service.outward.given import Given
from walkgraph.wire import messages as m

_MEDIA: tuple[Literal["image", "audio"], ...] = ("image", "audio")
_CHARSETS = {"iso-8859-1": "latin-1", "latin1": "latin-1", "windows-1252": "cp1252", "utf-16": "utf-16"}
"""Others than UTF-8, which an unknown one is taken for."""
_TEXTS = ("text/", "application/json", "application/xml", "application/javascript", "application/x-ndjson")


async def http_request(given: Given, outside: Outside) -> dict[str, m.Value]:
    """The outputs of a call. Raises as `Outside.exchange` does, and CallOutFailed for an answer that can't be used."""
    asked = _asked(given)
    found = await outside.exchange(asked)
    if given.params["fail"] and found.status >= 400:
        message = f"`{asked.url.origin}` answered with the status {found.status}; with `fail` off, the run goes on"
        raise CallOutFailed(message, retryable=found.status >= 500 or found.status == 429)
    failed = found.status >= 400
    makers = {
        "text": lambda: _text(found),
        "image": lambda: _media(found, "image"),
        "audio": lambda: _media(found, "audio"),
        "status": lambda: m.Small(value=found.status),
        "content_type": lambda: m.Small(value=found.content_type[: limits.NAME_CHARACTERS]),
    }
    # A picture is not expected where the server refused the request.
    wanted = [name for name in given.wanted(tuple(makers)) if not (failed and name in _MEDIA)]
    return {name: makers[name]() for name in wanted}


def _asked(given: Given) -> Outgoing:
    params = given.params
    body, kind = _body(given)
    headers = list(header_lines(str(params["headers"])))
    named = {name.lower() for name, _ in headers}
    if kind and "content-type" not in named:
        headers.append(("Content-Type", kind))
    if params["body"] == "json" and "accept" not in named:
        headers.append(("Accept", "application/json"))
    given.check_secrets("headers")
    return Outgoing(
        method=str(params["method"]),
        url=_url(str(params["url"]), given.text("url"), str(params["url_input"])),
        headers=tuple(headers),
        body=body,
        most_bytes=int(params["max_bytes"]),
    )


def _url(written: str, given: str | None, may: str) -> Url:
    if given is None:
        return parse_url(written)
    match may:
        case "whole":
            return parse_url(given)
        case "path":
            base = parse_url(written)
            url = base.to(given)
            if url.origin != base.origin:
                raise InvalidInput(f"the input `url` is a path and a query of `{base.origin}`, as `url_input` says")
            return url
        case _:
            raise InvalidInput("the parameter `url_input` says that the input `url` is refused; set it to `path`")


def _body(given: Given) -> tuple[bytes, str]:
    """The request's body, and its content type."""
    text, media = given.text("text"), {name: data for name in _MEDIA if (data := given.data(name)) is not None}
    if len(media) + (text is not None) > 1:
        raise InvalidInput("a request has one body: give it `text`, `image` or `audio`")
    if media:
        (data,) = media.values()
        return data, mime_of(data)
    if text is None:
        return b"", ""
    if given.params["body"] == "json":
        try:
            json.loads(text, parse_constant=_not_json)
        except (ValueError, RecursionError):
            raise InvalidInput("the input `text` is not JSON, as `body` says; set it to `text`, or mend it") from None
        return text.encode(errors="replace"), "application/json"
    return text.encode(errors="replace"), "text/plain; charset=utf-8"


def _not_json(name: str) -> None:
    raise ValueError(name)


def _text(found: Incoming) -> m.Small:
    kind, _, rest = found.content_type.lower().partition(";")
    kind = kind.strip()
    if kind and not (kind.startswith(_TEXTS) or kind.endswith(("+json", "+xml"))):
        raise CallOutFailed(f"the answer is no text but `{kind[:80]}`; connect `image` or `audio` for media")
    charset = rest.partition("charset=")[2].strip("\"' ").partition(";")[0] or "utf-8"
    text = found.body.decode(_CHARSETS.get(charset, "utf-8"), errors="replace")
    if len(text) > limits.TEXT_CHARACTERS:
        raise CallOutFailed(f"the answer has more than {limits.TEXT_CHARACTERS} characters; ask for less")
    return m.Small(value=text)


def _media(found: Incoming, modality: Literal["image", "audio"]) -> m.Blob:
    # Decided by its bytes, as its readers do: a content type is only what the server says.
    if not mime_of(found.body).startswith(f"{modality}/"):
        what = "a picture (PNG, JPEG, WebP)" if modality == "image" else "sound (WAV, FLAC, Ogg)"
        raise CallOutFailed(f"the answer is not {what}")
    return m.Blob(data=found.body)
