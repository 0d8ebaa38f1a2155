"""Places: how many requests of one kind are answered at once. Further requests get 429 with retry-after."""

import asyncio

from vgpuscope.http.too_many import too_many


class Places:
    """A fixed number of places, and a short queue for them."""

    def __init__(self, most: int, *, waiting: int = 0) -> None:
        self._most = most + waiting
        self._free = asyncio.Semaphore(most)
        self.taken = 0  # including those that wait

    async def take(self) -> None:
        """Take a place, perhaps after waiting for it; 429 if the queue is full. Every place must be left."""
        if self.taken >= self._most:
            too_many()
        self.taken += 1
        try:
            await self._free.acquire()
        except BaseException:
            self.taken -= 1
            raise

    def leave(self) -> None:
        """Give a place back."""
        self.taken -= 1
        self._free.release()

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_: object) -> None:
        self.leave()
