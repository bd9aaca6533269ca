"""Sound from clients, encoded or as tensors, whose contents may be anything. A waveform is float32 `[n]`."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed
from walkgraph.architectures.recordings import CHANNELS, RATES, SOUND_FORMATS, opened, plain_wav, sound_stream

MAX_SAMPLES = 64 * 10**6
"""The most samples of a waveform: 256 MB."""
_MOST_READ = 8 * MAX_SAMPLES
"""The most samples of all channels that are decoded for one."""
_PIECE = 1 << 16
_SHORT = 1 << 18
"""The most bytes of a file that is short."""


def waveform_of(call: Call, port: str) -> Tensor:
    """The waveform at a port. Raises `CallFailed` for a tensor that isn't one."""
    return _checked(call, port, call.inputs.get(port))


def all_waveforms_of(call: Call, port: str, most: int) -> list[Tensor]:
    """The waveforms of a list, 1 to `most` of them, all where the first one is. Raises `CallFailed` for anything
    else."""
    given = call.inputs.get(port)
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or not 1 <= len(given) <= most:
        raise CallFailed(f"`{call.node}` takes a list of 1 to {most:,} waveforms", port, code="invalid_input")
    waves = [_checked(call, port, one) for one in cast("Sequence[Any]", given)]
    return [wave.to(waves[0].device) for wave in waves]


def allow(call: Call, samples: int, port: str | None = None) -> None:
    """Raise `CallFailed` if a call's result has more samples than any waveform may."""
    if samples > MAX_SAMPLES:
        raise CallFailed(
            f"`{call.node}` would make {samples:,} samples, and {MAX_SAMPLES // 10**6} million is the most; "
            "shorten the sound, or lower its sample rate",
            port,
            code="invalid_input",
        )


def decode(call: Call, port: str, formats: Sequence[str] = SOUND_FORMATS) -> Tensor | None:
    """The sound of a file, its channels averaged, at the call's `sample_rate`; None for a file without a sound track.
    Raises `CallFailed`."""
    plain = plain_wav(call.inputs.get(port)) if "wav" in formats else None
    if plain is not None:
        rate, whole = plain.rate, _averaged(plain.samples)
    else:
        with opened(call, port, formats) as container:
            stream = sound_stream(container)
            if stream is None:
                return None
            pieces, rate = _pieces(call, port, container, stream)
        whole = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    wanted = int(call.params["sample_rate"])
    allow(call, _length(len(whole), rate, wanted), port)
    return torch.from_numpy(resampled(whole, rate, wanted))


def is_short(call: Call, port: str) -> bool:
    """True for at most 8 seconds of sound at 16 kHz, or as many samples at another rate, in a plain WAV file that has
    the call's `sample_rate`: `decode` takes less than 0.1 ms. The file may be damaged all the same."""
    data = call.inputs.get(port)
    if not isinstance(data, bytes) or len(data) > _SHORT:
        return False
    plain = plain_wav(data)
    return plain is not None and plain.rate == int(call.params["sample_rate"])


def resampled(wave: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """float32 `[n]` at one sample rate -> `[ceil(n * wanted / rate)]` at another, band-limited."""
    if rate == wanted or not len(wave):
        return wave
    # Not before: short sound in plain files needs no FFmpeg.
    from av import AudioFrame, AudioResampler

    # Silence after the end, as long as the filter, brings out the last samples.
    silence = np.zeros(128 * (1 + rate // wanted), np.float32)
    resampler = AudioResampler(format="flt", layout="mono", rate=wanted)
    made: list[np.ndarray] = []
    for piece in (*np.split(wave, range(_PIECE, len(wave), _PIECE)), silence):
        frame = AudioFrame.from_ndarray(np.ascontiguousarray(piece[None]), format="flt", layout="mono")
        frame.sample_rate = rate
        made += (one.to_ndarray()[0] for one in resampler.resample(frame))
    made += (one.to_ndarray()[0] for one in resampler.resample(None))
    return np.concatenate(made)[: _length(len(wave), rate, wanted)]


def _pieces(call: Call, port: str, container: Any, stream: Any) -> tuple[list[np.ndarray], int]:
    """The sound as it is decoded, its channels averaged, and its sample rate."""
    pieces, rate, read = list[np.ndarray](), 0, 0
    for frame in container.decode(stream):
        if frame.sample_rate not in RATES or frame.layout.nb_channels > CHANNELS:
            message = f"`{call.node}` reads sound at {RATES[0]:,} to {RATES[-1]:,} Hz, in at most {CHANNELS} channels"
            raise CallFailed(message, port, code="invalid_input")
        rate = frame.sample_rate
        read += frame.samples * frame.layout.nb_channels
        if read > _MOST_READ:
            message = (
                f"`{call.node}` reads at most {_MOST_READ // 10**6} million samples of all channels; shorten the sound"
            )
            raise CallFailed(message, port, code="invalid_input")
        pieces.append(_mono(frame))
    return pieces, rate


def _mono(frame: Any) -> np.ndarray:
    """The samples of a frame as float32 `[n]`, its channels averaged. FFmpeg's resampler does it too, but makes threads
    for a graph of filters, which takes longer than to decode some seconds."""
    given = frame.to_ndarray()
    if not frame.format.is_planar:
        given = given.reshape(-1, frame.layout.nb_channels).T
    return _averaged(given)


def _averaged(given: np.ndarray) -> np.ndarray:
    """Samples `[channels, n]` of any type -> float32 `[n]` in [-1, 1], the average of the channels."""
    mono = given[0].astype(np.float32) if len(given) == 1 else given.mean(0, dtype=np.float32)
    if given.dtype.kind == "f":
        return mono
    half = np.float32(1 << (8 * given.dtype.itemsize - 1))
    return mono / half - np.float32(given.dtype.kind == "u")


def _length(samples: int, rate: int, wanted: int) -> int:
    return -(-samples * wanted // rate) if rate else 0


def _checked(call: Call, port: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.dim() != 1:
        raise CallFailed(f"`{call.node}` takes sound as tensors of shape [samples]", port, code="invalid_input")
    allow(call, len(value), port)
    return value.float()
