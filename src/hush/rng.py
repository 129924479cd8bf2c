"""The only source of randomness.

    >>> Rng().is_secret                 # fresh entropy from the operating system
    True
    >>> Rng.from_seed(7).label          # for tests and teaching; a report says so
    'seed 7'

Streams are named, so that a test can fix the sampling without fixing the noise. Nothing here reads or writes the
global generators: `torch.manual_seed` and `numpy.random.seed` change no noise, and Hush's draws change no user code.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy

from hush import _check

if TYPE_CHECKING:
    import torch

_ENTROPY_BYTES = 32


@dataclass(frozen=True)
class Rng:
    """A root of named random streams; `seed=None` means fresh operating-system entropy."""

    seed: int | None = None
    _root: bytes = field(default=b"", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.seed is None:
            root = secrets.token_bytes(_ENTROPY_BYTES)
        else:
            root = str(_check.whole("seed", self.seed, least=0)).encode()
        object.__setattr__(self, "_root", root)

    @classmethod
    def from_entropy(cls) -> Rng:
        """Fresh entropy; the only source that a guarantee may rest on."""
        return cls()

    @classmethod
    def from_seed(cls, seed: int) -> Rng:
        """A repeatable source. Whoever knows the seed can subtract the noise: never release what it made."""
        return cls(seed)

    @property
    def is_secret(self) -> bool:
        """False where somebody could repeat the draws."""
        return self.seed is None

    @property
    def label(self) -> str:
        """What a report says about this source."""
        return "operating-system entropy" if self.is_secret else f"seed {self.seed}"

    def __getstate__(self) -> object:
        raise TypeError("an Rng is not written to disk: its state would undo the noise; make a new one instead.")

    def _material(self, name: str) -> bytes:
        return hashlib.blake2b(name.encode(), key=hashlib.sha256(self._root).digest()).digest()

    def stream(self, name: str) -> numpy.random.Generator:
        """The numpy stream of that name; the same name gives the same stream, from its beginning."""
        material = int.from_bytes(self._material(name), "little")
        return numpy.random.Generator(numpy.random.PCG64DXSM(material))

    def torch_stream(self, name: str, device: str = "cpu") -> torch.Generator:
        """The torch stream of that name, apart from torch's global one."""
        import torch

        generator = torch.Generator(device=device)
        return generator.manual_seed(int.from_bytes(self._material(name)[:8], "little", signed=True))
