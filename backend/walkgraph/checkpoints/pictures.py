"""How pictures are resized for a model, by its config or a graph."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PictureRules:
    """How a client's picture is resized before an encoder: sides become multiples of `stride`, within bounds."""

    min_side: int
    max_side: int
    stride: int
    max_pixels: int = 14 * 14 * 9 * 1024

    def __post_init__(self) -> None:
        if self.min_side % self.stride or self.max_side % self.stride or self.min_side > self.max_side:
            raise ValueError("`min_side` <= `max_side` must both be multiples of `stride`")

    def target(self, width: int, height: int) -> tuple[int, int]:
        """The size to resize a picture of this size to. Equal bounds give that square, whatever the shape."""
        if self.min_side == self.max_side:
            return self.min_side, self.min_side
        scale = max(min(self.max_side / max(width, height), 1.0), self.min_side / min(width, height))
        width, height = self._scaled(width, height, scale)
        if width * height > self.max_pixels:
            width, height = self._scaled(width, height, self.max_pixels / (width * height))
        if max(width, height) > self.max_side:
            width, height = self._scaled(width, height, self.max_side / max(width, height))
        return width, height

    def _scaled(self, width: int, height: int, scale: float) -> tuple[int, int]:
        w, h = (max(self.stride, round(round(side * scale) / self.stride) * self.stride) for side in (width, height))
        return w, h
