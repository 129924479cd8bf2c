"""The only source of randomness.

    >>> Rng().is_secret                 # fresh entropy from the operating system
    True
    >>> Rng.from_seed(7).label          # for tests and teaching; a report says so
    'seed 7'

Streams are named, so that a test can fix the sampling without fixing the noise. Nothing here reads or writes the
global generators: `torch.manual_seed` and `numpy.random.seed` change no noise, and Hush's draws change no user code.

Noise that is released comes from a `CipherStream`. Numpy's and torch's streams are good generators and no cryptographic
ones: numpy keeps 128 bits of the entropy, torch 64.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy
from numpy.typing import NDArray

from hush import _check
from hush.errors import InvalidValue

if TYPE_CHECKING:
    import torch
    from cryptography.hazmat.primitives.ciphers import AEADEncryptionContext

_ENTROPY_BYTES = 32
_KEY_BYTES, _NONCE_BYTES, _BLOCK_BYTES, _WORD_BYTES = 32, 12, 16, 8
_NONCE_SERVES = 1 << 35  # bytes; GCM allows twice as many
_ZEROS = memoryview(bytes(1 << 17))  # few, so that they stay in the cache


class CipherStream:
    """Random 64-bit words: the key stream of AES-256 in counter mode, which nobody without the key can foresee.

    It is taken from GCM, whose counter mode OpenSSL has in its quickest form. GCM counts blocks in 32 bits behind a
    nonce of 96, so the nonce goes up by one before they are used up, and no block comes twice. Unless AES is broken,
    blocks^2 / 2^129 bounds the advantage of telling `blocks` of it from true randomness.
    """

    def __init__(self, material: bytes) -> None:
        self._key = material[:_KEY_BYTES]
        self._nonce = int.from_bytes(material[_KEY_BYTES : _KEY_BYTES + _NONCE_BYTES], "big")
        self._encryptor, self._left = self._opened(), _NONCE_SERVES
        self._process = os.getpid()
        self._room = bytearray(_BLOCK_BYTES)
        self._words: NDArray[numpy.int64] = numpy.frombuffer(self._room, dtype=numpy.int64, count=0)

    def _opened(self) -> AEADEncryptionContext:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        nonce = self._nonce.to_bytes(_NONCE_BYTES, "big")
        return Cipher(algorithms.AES256(self._key), modes.GCM(nonce)).encryptor()

    def require_own(self) -> None:
        """Raise in a forked copy, which would repeat its parent's words and what was made of them."""
        if os.getpid() != self._process:
            raise InvalidValue("a random stream belongs to the process that made it; make a new Rng after a fork.")

    def words(self, count: int) -> NDArray[numpy.int64]:
        """The next `count` words, in an array that the next call overwrites."""
        self.require_own()
        size = count * _WORD_BYTES
        if len(self._room) != size + _BLOCK_BYTES:
            self._room = bytearray(size + _BLOCK_BYTES)  # the library asks for a spare block
            self._words = numpy.frombuffer(self._room, dtype=numpy.int64, count=count)
        room, start = memoryview(self._room), 0
        while start < size:
            if not self._left:
                self._nonce = (self._nonce + 1) % (1 << 8 * _NONCE_BYTES)
                self._encryptor, self._left = self._opened(), _NONCE_SERVES
            taken = min(size - start, len(_ZEROS), self._left)
            self._encryptor.update_into(_ZEROS[:taken], room[start : start + taken + _BLOCK_BYTES])
            start, self._left = start + taken, self._left - taken
        return self._words

    def __getstate__(self) -> object:
        raise TypeError("a random stream is not written to disk: it would undo the noise; make a new one instead.")


@dataclass(frozen=True)
class Rng:
    """A root of named random streams; `seed=None` means fresh operating-system entropy."""

    seed: int | None = None
    _root: bytes = field(default=b"", init=False, repr=False, compare=False)
    _opened: dict[str, Iterator[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

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

    def child(self, name: str) -> Rng:
        """A root of its own, as secret as this one; the same name gives the same child.

        >>> Rng.from_seed(7).child("rank 1").label
        'seed 7'
        """
        return self._with_root(self._material(f"child/{name}"))

    def hand_over(self) -> bytes:
        """A fresh secret of 64 bytes, from which other processes of one run make the same `Rng` by `taken_over`."""
        return self._material(self.unused("handed over"))

    def taken_over(self, secret: bytes) -> Rng:
        """An Rng with the root that another process handed over, and this one's label."""
        return self._with_root(secret)

    def _with_root(self, root: bytes) -> Rng:
        result = Rng(self.seed)
        object.__setattr__(result, "_root", root)
        return result

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

    def cipher_stream(self, name: str) -> CipherStream:
        """The cryptographic stream of that name; the same name gives the same stream, from its beginning."""
        return CipherStream(self._material(name))

    def unused(self, name: str) -> str:
        """A name that this Rng has not given before, so that no two streams opened by such names are equal.

        >>> rng = Rng.from_seed(7)
        >>> rng.unused("noise"), rng.unused("noise")
        ('noise#1', 'noise#2')
        """
        return f"{name}#{next(self._opened.setdefault(name, itertools.count(1)))}"


@contextmanager
def same_draws(seed: int = 0) -> Iterator[None]:
    """Put torch's global generator to a fixed state, and back afterwards: two passes then use the same dropout."""
    import torch

    with torch.random.fork_rng():
        devices = getattr(torch, "accelerator", None)
        if devices is None or devices.is_available():
            torch.manual_seed(seed)
        else:  # without the notes that torch takes for devices that are not there
            torch.default_generator.manual_seed(seed)
        yield
