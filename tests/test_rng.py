"""Randomness: fresh by default, labelled where seeded, untouched by the global generators."""

from __future__ import annotations

import copy
import pickle
import random

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import hush.rng as rng_module
from hush import Rng
from hush.errors import InvalidValue
from hush.rng import CipherStream

pytestmark = pytest.mark.fresh_entropy


def draws(rng: Rng, name: str = "noise") -> list[float]:
    return rng.stream(name).normal(size=4).tolist() + torch.randn(4, generator=rng.torch_stream(name)).tolist()


def test_fresh_entropy_is_the_default_and_differs() -> None:
    assert Rng().is_secret
    assert Rng().label == "operating-system entropy"
    assert draws(Rng()) != draws(Rng())


def test_global_seeds_do_not_move_the_noise() -> None:
    found = []
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        found.append(draws(Rng()))
    assert found[0] != found[1]


def test_drawing_does_not_move_the_global_generators() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    draws(Rng())
    draws(Rng.from_seed(3))
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # type: ignore[index]


def test_a_seed_repeats_and_is_labelled() -> None:
    assert draws(Rng.from_seed(7)) == draws(Rng.from_seed(7))
    assert draws(Rng.from_seed(7)) != draws(Rng.from_seed(8))
    assert not Rng.from_seed(7).is_secret
    assert Rng.from_seed(7).label == "seed 7"


def test_streams_of_different_names_differ() -> None:
    rng = Rng.from_seed(7)
    assert draws(rng, "noise") != draws(rng, "sampling")
    correlation = np.corrcoef(rng.stream("noise").normal(size=20_000), rng.stream("sampling").normal(size=20_000))[0, 1]
    assert abs(correlation) < 5 / np.sqrt(20_000)  # five standard deviations: false alarm 6e-7


def test_the_state_is_neither_shown_nor_written() -> None:
    rng = Rng()
    assert repr(rng) == "Rng(seed=None)"
    with pytest.raises(TypeError, match="not written"):
        pickle.dumps(rng)
    with pytest.raises(TypeError, match="not written"):
        copy.deepcopy(rng)


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_a_bad_seed_is_refused(seed: object) -> None:
    with pytest.raises(InvalidValue, match="seed"):
        Rng.from_seed(seed)  # type: ignore[arg-type]


def counter_mode(material: bytes, count: int) -> bytes:
    """The key stream of CTR-AES256 behind this key and nonce, from block 2 on: block 1 is GCM's own."""
    start = material[32:44] + (2).to_bytes(4, "big")
    return Cipher(algorithms.AES256(material[:32]), modes.CTR(start)).encryptor().update(bytes(count))


def test_the_cipher_stream_is_aes_in_counter_mode() -> None:
    """Known answers: test case 14 of the GCM specification (McGrew, Viega 2005), and SP 800-38A, F.5.5, for CTR."""
    assert CipherStream(bytes(64)).words(2).tobytes() == bytes.fromhex("cea7403d4d606b6e074ec5d3baf39d18")
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    blocks = bytes.fromhex("0bdf7df1591716335e9a8b15c860c5025a6e699d536119065433863c8f657b94")
    assert Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor().update(bytes(32)) == blocks
    material = key + counter
    expected = counter_mode(material, 1 << 20)
    assert CipherStream(material).words(1 << 17).tobytes() == expected  # more than is made in one go
    stream = CipherStream(material)
    assert b"".join(stream.words(count).tobytes() for count in (2, 1, 3, 0, 2)) == expected[:64]  # it goes on


def test_a_nonce_serves_for_less_than_its_counter_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rng_module._NONCE_SERVES < 16 * (2**32 - 2)
    monkeypatch.setattr(rng_module, "_NONCE_SERVES", 64)
    material = bytes(range(64))
    following = material[:32] + (int.from_bytes(material[32:44], "big") + 1).to_bytes(12, "big")
    found = CipherStream(material).words(12).tobytes()
    assert found == counter_mode(material, 64) + counter_mode(following, 32)
    last = CipherStream(bytes(32) + b"\xff" * 12)
    assert last.words(12).tobytes()[64:] == counter_mode(bytes(44), 32)  # after the last nonce comes the first


def test_cipher_streams_are_named_and_fresh() -> None:
    def words(rng: Rng, name: str) -> list[int]:
        return rng.cipher_stream(name).words(8).tolist()

    assert words(Rng.from_seed(7), "noise") == words(Rng.from_seed(7), "noise")
    assert words(Rng.from_seed(7), "noise") != words(Rng.from_seed(7), "other")
    assert words(Rng.from_seed(7), "noise") != words(Rng.from_seed(8), "noise")
    assert words(Rng(), "noise") != words(Rng(), "noise")


def test_a_cipher_stream_is_neither_written_nor_used_after_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Rng().cipher_stream("noise")
    with pytest.raises(TypeError, match="not written"):
        pickle.dumps(stream)
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(InvalidValue, match="fork"):
        stream.words(2)


def test_unused_names_never_come_twice() -> None:
    rng = Rng()
    names = [rng.unused(name) for name in ("noise", "noise", "canaries", "noise")]
    assert len(set(names)) == 4
    assert Rng().unused("noise") == names[0]  # each Rng counts for itself, so that a seed repeats


def test_children_share_nothing_with_each_other_or_their_parent() -> None:
    for root in (Rng.from_seed(7), Rng()):
        family = [root, root.child("rank 0"), root.child("rank 1"), root.child("rank 0").child("rank 0")]
        words = [tuple(each.cipher_stream("noise").words(8).tolist()) for each in family]
        assert len(set(words)) == len(family)
        assert tuple(root.child("rank 0").cipher_stream("noise").words(8).tolist()) not in words
        assert [each.is_secret for each in family] == [root.is_secret] * len(family)


def test_a_secret_that_is_handed_over_gives_the_same_streams_once() -> None:
    first, second = Rng(), Rng()
    secret = first.hand_over()
    pair = [each.taken_over(secret).stream("sampling").random(5).tolist() for each in (first, second)]
    assert pair[0] == pair[1]
    assert first.hand_over() != secret
    assert first.stream("sampling").random(5).tolist() != pair[0]
    assert second.taken_over(secret).is_secret


def test_a_secret_root_has_at_least_128_bits_of_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(number: int) -> bytes:
        asked.append(number)
        return bytes(number)

    monkeypatch.setattr(rng_module.secrets, "token_bytes", counted)
    Rng.from_entropy()
    assert min(asked) >= 16
