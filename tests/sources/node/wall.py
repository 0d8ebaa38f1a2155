"""Wall time that moves when a test says so."""

NOW = 1_800_000_000.0


class WallClock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds
