"""A spoken answer as its client heard it. Without torch, so that a process of clients starts fast."""

from dataclasses import dataclass, field

RATE = 24_000
"""Samples a second."""
PLAYER = 0.1
"""Seconds that the player lets gather."""
WAV_HEAD = 44


@dataclass
class Heard:
    """One request, as its client saw it. Seconds from the request on."""

    at: list[float] = field(default_factory=list[float])
    audio: list[float] = field(default_factory=list[float])
    """Seconds of sound of each piece."""
    seconds: float = 0.0
    step: float | None = None

    @property
    def sound(self) -> float:
        return sum(self.audio)

    def stalls(self) -> list[float]:
        """Seconds of each time that the player had nothing to play."""
        if not self.at:
            return []
        until, found = self.at[0] + PLAYER, list[float]()
        for at, audio in zip(self.at, self.audio, strict=True):
            if at > until:
                found.append(at - until)
                until = at
            until += audio
        return found
