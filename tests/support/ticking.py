"""A clock that doesn't depend on the machine."""


class Ticking:
    """Goes on by a tick whenever it is asked, so that times tell what was before what."""

    def __init__(self, seconds: float = 1e-5) -> None:
        """`seconds`: those of a tick."""
        self.now, self._seconds = 100.0, seconds

    def __call__(self) -> float:
        self.now += self._seconds
        return self.now
