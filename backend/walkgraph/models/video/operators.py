"""Video at the border: MP4 and WebM outside, a list of pictures inside, by FFmpeg through PyAV. Clients may send any
bytes."""

import math
from collections.abc import Sequence
from fractions import Fraction
from io import BytesIO
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.architectures import sounds
from walkgraph.architectures.pictures import MAX_PIXELS, all_pixels_of
from walkgraph.architectures.recordings import MAX_FRAME, VIDEO_FORMATS, opened, video_stream
from walkgraph.layers.pictures.patches import normalise, to_levels
from walkgraph.models.video.components import MOST_FRAMES

_MOST_READ = 8 * 10**9
"""The most pixels that are decoded for a call: two minutes of 1920 by 1080 at 30 frames a second."""
_MOST_WRITTEN = 4 * MAX_PIXELS
_LONGEST = 8192
_RATES = (0.1, 240.0)
"""Bounds of frames per second."""
_SOUND_RATE = 48000
"""At which sound is encoded."""


class FramesIn(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [_read(call) for call in calls]


class FramesOut(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"video": video} for video in map(_written, calls)]


class AudioIn(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        waves = [sounds.decode(call, "video", VIDEO_FORMATS) for call in calls]
        return [{"waveform": torch.zeros(0) if wave is None else wave} for wave in waves]


class Sample(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"frames": _sampled(call)} for call in calls]


class Concat(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"frames": _joined(call)} for call in calls]


def _sampled(call: Call) -> list[Tensor]:
    frames = all_pixels_of(call, "frames", MOST_FRAMES)
    every, first, most = (int(call.params[name]) for name in ("every", "first", "most"))
    taken = frames[first::every]
    if not taken:
        message = f"`{call.node}` leaves out all {len(frames):,} pictures; lower `first`"
        raise CallFailed(message, "frames", code="invalid_input")
    return taken[:most] if most else taken


def _joined(call: Call) -> list[Tensor]:
    frames, more = all_pixels_of(call, "frames", MOST_FRAMES), all_pixels_of(call, "more", MOST_FRAMES)
    if len(frames) + len(more) > MOST_FRAMES:
        message = f"`{call.node}` would give {len(frames) + len(more):,} pictures, and {MOST_FRAMES:,} is the most"
        raise CallFailed(f"{message}; sample fewer", "more", code="invalid_input")
    return [*frames, *(picture.to(frames[0].device) for picture in more)]


# ── in ──────────────────────────────────────────────────────────────────────────────────────────


def _read(call: Call) -> Outputs:
    total = _count(call) if call.params["spread"] else 0
    with opened(call, "video", VIDEO_FORMATS) as container:
        stream = video_stream(container)
        if stream is None:
            message = f"the file at `{call.node}` has no pictures that can be read; encode it as H.264, VP9 or AV1"
            raise CallFailed(message, "video", code="invalid_input")
        _allow_frame(call, stream.codec_context)
        frames, times = _taken(call, container, stream, total)
        if not frames:
            message = f"the video at `{call.node}` has no frame after {call.params['start']:g} seconds; lower `start`"
            raise CallFailed(message, "video", code="invalid_input")
        average = float(stream.average_rate or 0) / int(call.params["every"])
    span = times[-1] - times[0]
    # Recordings of browsers declare no rate; the times of the frames tell it.
    rate = (len(times) - 1) / span if span > 0 else average
    return {"frames": frames, "rate": round(min(max(rate, _RATES[0]), _RATES[1]), 3)}


def _count(call: Call) -> int:
    """The number of n-th frames, by the file's packets: nothing is decoded."""
    start, count = float(call.params["start"]), 0
    with opened(call, "video", VIDEO_FORMATS) as container:
        stream = video_stream(container)
        for packet in () if stream is None else container.demux(stream):
            count += packet.pts is not None and float(packet.pts * packet.time_base) >= start
    return -(-count // int(call.params["every"]))


def _taken(call: Call, container: Any, stream: Any, total: int) -> tuple[list[Tensor], list[float]]:
    """The wanted frames and their times in seconds. `total`: the number of n-th frames if they are to be taken evenly
    from all of them; 0 if from the first on."""
    every, most, side = (int(call.params[name]) for name in ("every", "most", "max_side"))
    start, read, pixels, after = float(call.params["start"]), 0, 0, 0
    frames: list[Tensor] = []
    times: list[float] = []
    for frame in container.decode(stream):
        read += frame.width * frame.height
        if read > _MOST_READ:
            message = f"`{call.node}` reads at most {_MOST_READ // 10**6:,} million pixels of a video"
            raise CallFailed(f"{message}; send a shorter or smaller one", "video", code="invalid_input")
        if frame.time is not None and frame.time < start:
            continue
        number, rest = divmod(after, every)
        after += 1
        if rest or (total > most and number and number * most // total == (number - 1) * most // total):
            continue
        frames.append(_pixels(frame, side))
        times.append(frame.time or 0.0)
        pixels += frames[-1][0].numel()
        if pixels > MAX_PIXELS:
            message = f"`{call.node}` would give more than {MAX_PIXELS // 10**6} million pixels"
            raise CallFailed(f"{message}; lower `most` or `max_side`, or raise `every`", "video", code="invalid_input")
        if len(frames) == most:
            break
    return frames, times


def _allow_frame(call: Call, declared: Any) -> None:
    if declared.width * declared.height > MAX_FRAME:
        message = f"`{call.node}` reads frames of at most {MAX_FRAME:,} pixels; send a smaller video"
        raise CallFailed(message, "video", code="invalid_input")


def _pixels(frame: Any, side: int) -> Tensor:
    scale = min(side / max(frame.width, frame.height), 1.0)
    width, height = (max(round(length * scale), 1) for length in (frame.width, frame.height))
    levels = frame.reformat(
        width, height, format="rgb24", interpolation="AREA" if scale < 1 else "BILINEAR"
    ).to_ndarray()
    turns = round(frame.rotation / 90) % 4
    return normalise(torch.from_numpy(np.ascontiguousarray(np.rot90(levels, turns))))


# ── out ─────────────────────────────────────────────────────────────────────────────────────────


def _written(call: Call) -> bytes:
    import av

    frames = all_pixels_of(call, "frames", MOST_FRAMES)
    _allow_frames(call, frames)
    rate, webm = _rate_of(call), call.params["format"] == "webm"
    sound = call.inputs.get("waveform")
    wave = None if sound is None else sounds.waveform_of(call, "waveform").cpu()
    made = BytesIO()
    with av.open(made, "w", format=str(call.params["format"])) as container:
        pictures = _picture_track(call, container, rate, frames[0], webm=webm)
        heard = (
            container.add_stream("libopus" if webm else "aac", rate=_SOUND_RATE, layout="mono")
            if sound is not None
            else None
        )
        for index, picture in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(_even(to_levels(picture).cpu().numpy()), format="rgb24")
            frame.pts, frame.time_base = index, 1 / rate
            container.mux(pictures.encode(frame))
        container.mux(pictures.encode(None))
        if wave is not None:
            _write_sound(container, heard, sounds.resampled(wave.numpy(), int(call.params["sample_rate"]), _SOUND_RATE))
    return made.getvalue()


def _allow_frames(call: Call, frames: Sequence[Tensor]) -> None:
    shapes = {tuple(frame.shape) for frame in frames}
    if len(shapes) > 1:
        message = f"the frames of `{call.node}` have different sizes; resize them first"
        raise CallFailed(message, "frames", code="invalid_input")
    ((_, height, width),) = shapes
    if len(frames) * height * width > _MOST_WRITTEN or height * width > MAX_FRAME or max(height, width) > _LONGEST:
        message = (
            f"`{call.node}` writes frames of at most {MAX_FRAME:,} pixels, and {_MOST_WRITTEN // 10**6} million in all"
        )
        raise CallFailed(f"{message}; make them smaller or fewer", "frames", code="invalid_input")


def _rate_of(call: Call) -> Fraction:
    given = call.inputs.get("rate")
    rate = float(call.params["rate"] if given is None else given)
    if not math.isfinite(rate) or not _RATES[0] <= rate <= _RATES[1]:
        message = f"`rate` of `{call.node}` is from {_RATES[0]:g} to {_RATES[1]:g} frames per second, not {rate:g}"
        raise CallFailed(message, "rate", code="invalid_input")
    return Fraction(rate).limit_denominator(1001)


def _picture_track(call: Call, container: Any, rate: Fraction, like: Tensor, *, webm: bool) -> Any:
    share = int(call.params["quality"]) / 100
    if webm:
        # Its quantiser goes from 0 to 63; `realtime` takes a tenth of the default's time.
        options = {"crf": str(round(55 - 45 * share)), "b": "0", "deadline": "realtime", "cpu-used": "8", "row-mt": "1"}
    else:
        options = {"crf": str(round(40 - 28 * share)), "preset": "veryfast"}
    stream = container.add_stream("libvpx-vp9" if webm else "libx264", rate=rate, options=options)
    stream.width, stream.height = (side + side % 2 for side in (like.shape[2], like.shape[1]))
    stream.pix_fmt = "yuv420p"
    stream.codec_context.thread_count = 2
    return stream


def _even(levels: np.ndarray) -> np.ndarray:
    """uint8 `[h, w, 3]` with even sides, as colours of a video stand for two by two pixels; the last row and column are
    repeated."""
    height, width, _ = levels.shape
    return np.pad(levels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def _write_sound(container: Any, track: Any, wave: np.ndarray) -> None:
    from av import AudioFrame

    step = _SOUND_RATE
    for start in range(0, len(wave), step):
        piece = np.ascontiguousarray(wave[None, start : start + step].clip(-1, 1))
        frame = AudioFrame.from_ndarray(piece, format="flt", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = _SOUND_RATE, start, Fraction(1, _SOUND_RATE)
        container.mux(track.encode(frame))
    container.mux(track.encode(None))
