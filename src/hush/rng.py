"""The only source of randomness.

    >>> Rng().is_secret                 # fresh entropy from the operating system
    True
    >>> Rng.from_seed(7).label          # for tests and teaching; a report says so
    'seed 7'

Streams are named, so that a test can fix the sampling without fixing the noise. Nothing here reads or writes the
global generators: `torch.manual_seed` and `numpy.random.seed` change no noise, and Hush's draws change no user code.

No two streams of one `Rng` are equal: a name that is opened again gets a stream of its own, by its number. A secret
`Rng` mixes the process into its key, so a forked process repeats nothing of its parent or its siblings. Streams that
were open at the fork are reseeded in the child (numpy, torch) or rejected there (`CipherStream`). A seeded `Rng` stays
repeatable: its n-th stream of a name is the same in every program and every process.

Noise that is released comes from a `CipherStream`. Numpy's and torch's streams are good generators and no cryptographic
ones: numpy keeps 128 bits of the entropy, torch 64.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

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
_SEPARATOR = "\0"  # between a name and its number; no name holds it, so that no two texts are equal
_NOT_WRITTEN = "a random stream is not written to disk or copied: it would undo the noise; make a new one instead."

_Process = tuple[bytes, int]  # token and id: the token tells forks apart, the id those that ran no hook of Python
_process_token = os.urandom(_ENTROPY_BYTES)
_numbering = threading.Lock()  # guards the numbers of names and the sets below
_locks: weakref.WeakSet[StreamLock] = weakref.WeakSet()
_numpy_streams: weakref.WeakSet[_SecretGenerator] = weakref.WeakSet()
_torch_streams: weakref.WeakSet[torch.Generator] = weakref.WeakSet()


def _this_process() -> _Process:
    return _process_token, os.getpid()


def _renew_after_fork() -> None:
    """Give the forked process a token of its own, open its locks and reseed the secret streams that were open.

    The entropy comes from `os.urandom` and not from `secrets`, so that no test can fix it for all children alike.
    """
    global _process_token, _numbering
    _process_token, _numbering = os.urandom(_ENTROPY_BYTES), threading.Lock()
    for lock in list(_locks):
        lock.renew()
    for stream in list(_numpy_streams):
        stream.reseed()
    for generator in list(_torch_streams):
        # A device that does not survive a fork (CUDA) raises here. Its generator cannot draw in this process either,
        # and the error must not keep the other streams from being reseeded: Python only prints what a hook raises.
        with suppress(RuntimeError):
            generator.manual_seed(int.from_bytes(os.urandom(8), "little", signed=True))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


class StreamLock:
    """A lock that is open in a forked process, even if a thread of the parent held it at the fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        with _numbering:
            _locks.add(self)

    def renew(self) -> None:
        """Replace the lock by an open one."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _SecretGenerator(numpy.random.Generator):
    """A numpy stream that is reseeded in a forked process, and cannot be copied into another one."""

    def __init__(self, bit_generator: numpy.random.BitGenerator) -> None:
        super().__init__(bit_generator)
        with _numbering:
            _numpy_streams.add(self)

    def reseed(self) -> None:
        """Begin again from fresh entropy."""
        seed = int.from_bytes(os.urandom(2 * _ENTROPY_BYTES), "little")
        self.bit_generator.state = type(self.bit_generator)(seed).state

    def __reduce__(self) -> Any:
        raise TypeError(_NOT_WRITTEN)


@cache
def _secret_torch_type() -> type[torch.Generator]:
    """Return the type of secret torch streams: one that cannot be copied. It is made late, when torch is loaded."""
    import torch

    class SecretTorchGenerator(torch.Generator):
        def __reduce_ex__(self, protocol: Any) -> Any:
            raise TypeError(_NOT_WRITTEN)

    return SecretTorchGenerator


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
        self._process = _this_process()
        self._lock = StreamLock()
        self._buffers = threading.local()  # one per thread, so that no thread overwrites what another one reads

    def _opened(self) -> AEADEncryptionContext:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        nonce = self._nonce.to_bytes(_NONCE_BYTES, "big")
        return Cipher(algorithms.AES256(self._key), modes.GCM(nonce)).encryptor()

    def require_own(self) -> None:
        """Raise in a forked copy, which would repeat its parent's words and what was made of them."""
        if _this_process() != self._process:
            raise InvalidValue("a random stream belongs to the process that made it; make a new Rng after a fork.")

    def words(self, count: int) -> NDArray[numpy.int64]:
        """Return the next `count` words, in an array that the next call in the same thread overwrites.

        Threads may share a stream: each word goes to one of them alone.
        """
        self.require_own()
        size = count * _WORD_BYTES
        kept: tuple[bytearray, NDArray[numpy.int64]] | None = getattr(self._buffers, "kept", None)
        if kept is None or len(kept[0]) != size + _BLOCK_BYTES:
            buffer = bytearray(size + _BLOCK_BYTES)  # the library asks for a spare block
            kept = self._buffers.kept = buffer, numpy.frombuffer(buffer, dtype=numpy.int64, count=count)
        with self._lock:
            self._fill(memoryview(kept[0]), size)
        return kept[1]

    def _fill(self, room: memoryview, size: int) -> None:
        start = 0
        while start < size:
            if not self._left:
                self._nonce = (self._nonce + 1) % (1 << 8 * _NONCE_BYTES)
                self._encryptor, self._left = self._opened(), _NONCE_SERVES
            taken = min(size - start, len(_ZEROS), self._left)
            self._encryptor.update_into(_ZEROS[:taken], room[start : start + taken + _BLOCK_BYTES])
            start, self._left = start + taken, self._left - taken

    def __getstate__(self) -> object:
        raise TypeError(_NOT_WRITTEN)


@dataclass(frozen=True)
class Rng:
    """A root of named random streams; `seed=None` means fresh operating-system entropy."""

    seed: int | None = None
    _root: bytes = field(default=b"", init=False, repr=False, compare=False)
    _process: _Process = field(default_factory=_this_process, init=False, repr=False, compare=False)
    _opened: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _named: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

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
        """Return a root of its own, as secret as this one; no two children of one Rng are equal, whatever their names.

        >>> Rng.from_seed(7).child("rank 1").label
        'seed 7'
        """
        return self._with_root(self._material(f"child/{name}"))

    def hand_over(self) -> bytes:
        """Return a fresh secret of 64 bytes, from which other processes of one run make the same `Rng`.

        This and `taken_over` are the only way to open a secret stream twice.
        """
        return self._material(self.unused("handed over"))

    def taken_over(self, secret: bytes) -> Rng:
        """Return an Rng with the root that another process handed over, and this one's label."""
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
        raise TypeError(
            "an Rng is not written to disk or copied: its state would undo the noise; make a new one instead."
        )

    def _material(self, name: str) -> bytes:
        """Return 64 bytes that this Rng never gives again: the key of one stream."""
        number = _next_number(self._opened, name)
        text = name if number == 1 else f"{name}{_SEPARATOR}{number}"
        return hashlib.blake2b(text.encode(), key=self._key()).digest()

    def _key(self) -> bytes:
        key = hashlib.sha256(self._root).digest()
        process = _this_process()
        if not self.is_secret or process == self._process:
            return key
        # A forked copy: its parent and its siblings hold the same root and the same numbers of names.
        token, number = process
        return hashlib.blake2b(token + str(number).encode(), key=key, digest_size=_KEY_BYTES).digest()

    def stream(self, name: str) -> numpy.random.Generator:
        """Return a new numpy stream. A name that is opened again gives another stream, by its number.

        >>> rng = Rng.from_seed(7)
        >>> rng.stream("sampling").random() == rng.stream("sampling").random()
        False
        """
        bits = numpy.random.PCG64DXSM(int.from_bytes(self._material(name), "little"))
        return _SecretGenerator(bits) if self.is_secret else numpy.random.Generator(bits)

    def torch_stream(self, name: str, device: str = "cpu") -> torch.Generator:
        """Return a new torch stream, apart from torch's global one; a name never gives the same stream twice."""
        import torch

        made = _secret_torch_type() if self.is_secret else torch.Generator
        generator = made(device=device)
        generator.manual_seed(int.from_bytes(self._material(name)[:8], "little", signed=True))
        if self.is_secret:
            with _numbering:
                _torch_streams.add(generator)
        return generator

    def cipher_stream(self, name: str) -> CipherStream:
        """Return a new cryptographic stream; a name never gives the same stream twice."""
        return CipherStream(self._material(name))

    def unused(self, name: str) -> str:
        """Return a name that this Rng has not given before, to which a caller may add parts of its own.

        >>> rng = Rng.from_seed(7)
        >>> rng.unused("noise"), rng.unused("noise")
        ('noise#1', 'noise#2')
        """
        return f"{name}#{_next_number(self._named, name)}"


def _next_number(numbers: dict[str, int], name: str) -> int:
    if _SEPARATOR in name:
        raise InvalidValue("the name of a random stream must not hold the character NUL.")
    with _numbering:
        numbers[name] = number = numbers.get(name, 0) + 1
    return number


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


@contextmanager
def fixed_seeds(seed: int = 0) -> Iterator[None]:
    """Begin the global generators of torch, numpy and Python at a fixed seed, and put them back afterwards."""
    with kept_generators():
        _start_global(seed)
        yield


def _start_global(seed: int) -> None:

    import torch

    torch.manual_seed(seed)
    numpy.random.seed(seed)  # noqa: NPY002 (the user's)
    random.seed(seed)


@contextmanager
def kept_generators() -> Iterator[None]:
    """Put the global generators back afterwards."""

    import torch

    before = torch.get_rng_state(), numpy.random.get_state(), random.getstate()  # noqa: NPY002 (the user's)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        numpy.random.set_state(before[1])  # noqa: NPY002
        random.setstate(before[2])


def is_generator(value: object) -> bool:
    """Return whether this is a generator of numpy's or Python's."""
    return isinstance(value, numpy.random.Generator | numpy.random.RandomState | random.Random)


def state_of(generator: Any) -> Any:
    """Return the state of a generator of numpy's or Python's."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, numpy.random.RandomState):
        return generator.get_state()
    return generator.bit_generator.state


def put_back(generator: Any, state: Any) -> None:
    """Give a generator the state that `state_of` returned."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, numpy.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def global_states() -> list[bytes]:
    """Return the states of the global generators, which are equal as long as nothing is drawn."""

    import torch

    states = [torch.get_rng_state().numpy().tobytes(), repr(random.getstate()).encode()]
    own: Any = numpy.random.get_state()  # noqa: NPY002 (the user's)
    states.append(own[1].tobytes() + str(own[2:]).encode())
    if torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state().numpy().tobytes())
    return states
