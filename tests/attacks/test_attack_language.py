"""Exposure and extraction on models whose probabilities are known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm, skewnorm
from torch import Tensor, nn

from hush import Rng, attacks
from hush.attacks import exposure_of
from hush.attacks.language import continued, log_perplexity, token_bits
from hush.attacks.skew_normal import SkewNormal, fit_skew_normal
from hush.errors import InvalidValue


def bigram(table: Tensor) -> object:
    """A model whose next token depends on the last one alone: its logits are rows of a table."""
    return lambda tokens: table[tokens]


TABLE = torch.tensor([[0.0, 2.0, -1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 3.0]])


def test_exposure_has_the_published_values() -> None:
    found = exposure_of([0.0, 3.5, 20.0], range(1, 17))
    assert found.values == pytest.approx([4.0, 2.0, math.log2(16 / 17)], abs=1e-14)
    assert found.ranks.tolist() == [1, 4, 17]
    assert found.limit == 4.0


def test_a_reference_as_likely_goes_first() -> None:
    assert exposure_of([3.0], [3.0, 5.0]).ranks.tolist() == [2]


def test_bits_are_those_of_the_chain() -> None:
    tokens = torch.tensor([[0, 1, 0, 2], [2, 2, 1, 1]])
    chances = torch.softmax(TABLE.double(), dim=1)
    expected = [[-math.log2(chances[a, b]) for a, b in itertools.pairwise(row)] for row in tokens.tolist()]
    assert token_bits(bigram(TABLE), tokens) == pytest.approx(np.array(expected), rel=1e-6)  # type: ignore[arg-type]
    summed = log_perplexity(bigram(TABLE), tokens, prefix_length=2)  # type: ignore[arg-type]
    assert summed == pytest.approx([sum(row[1:]) for row in expected], rel=1e-6)


def test_rows_at_once_change_nothing() -> None:
    tokens = torch.randint(0, 3, (57, 9), generator=torch.Generator().manual_seed(0))
    whole, parts = (token_bits(bigram(TABLE), tokens, rows_at_once=rows) for rows in (1000, 7))  # type: ignore[arg-type]
    assert np.array_equal(whole, parts)


def test_a_memorised_secret_is_exposed_and_a_stranger_is_not() -> None:
    """A model that prefers the digits of one secret at each place. 4,096 references: log2 is 12."""
    secret = torch.tensor([3, 1, 4, 1, 5, 9])

    def model(tokens: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, 10)
        places = torch.arange(tokens.shape[1] - 1)
        logits[:, places, secret[: tokens.shape[1] - 1]] = 4.0
        return logits

    stream = torch.Generator().manual_seed(1)
    start = torch.zeros(4096, 1, dtype=torch.int64)
    references = torch.cat([start, torch.randint(0, 10, (4096, 6), generator=stream)], dim=1)
    others = torch.cat([start[:200], torch.randint(0, 10, (200, 6), generator=stream)], dim=1)
    canary = torch.cat([torch.zeros(1, dtype=torch.int64), secret])[None]
    assert attacks.exposure(model, canary, references).values[0] == pytest.approx(12.0, abs=1.01)
    strangers = attacks.exposure(model, others, references).values
    # A stranger's exposure is -log2 of a uniform: mean 1 / ln 2 = 1.44 (less for ties, which go first), spread 1.44.
    assert 0.3 < strangers.mean() < 1.44 + 6 * 1.44 / math.sqrt(200)


def test_strangers_have_the_exposure_of_a_uniform_rank() -> None:
    """Without ties P(exposure > t) = 2^-t. 4,000 strangers: five standard errors."""
    stream = np.random.default_rng(3)
    values = exposure_of(stream.normal(0, 1, 4000), stream.normal(0, 1, 20_000)).values
    for bits in (1, 2, 4):
        chance = 2.0**-bits
        assert abs((values > bits).mean() - chance) < 5 * math.sqrt(chance / 4000) + 1e-3


def test_extrapolation_agrees_with_ranks_where_both_can_see() -> None:
    sample = skewnorm(3, 50, 6).rvs(20_000, random_state=1)
    secret = np.quantile(sample, [0.5, 0.1, 0.01])
    by_rank, by_fit = (exposure_of(secret, sample, method=method).values for method in ("rank", "extrapolate"))
    assert by_fit == pytest.approx(by_rank, abs=0.25)
    far = exposure_of([30.0], sample, method="extrapolate")
    truth = -SkewNormal(3, 50, 6).log2_cdf(np.array([30.0]))[0]
    assert far.values[0] == pytest.approx(truth, rel=0.15)
    assert far.values[0] > far.limit
    assert far.fit_p_value is not None
    assert far.fit_p_value > 0.01


@pytest.mark.parametrize("z", [-30.0, -8.0, -3.0, -1.0, 0.5, 3.0])
def test_the_tail_is_the_normal_one_without_skew_and_its_square_at_one(z: float) -> None:
    """Shape 0 is the normal; at shape 1 the distribution function is its square."""
    exact = norm.logcdf(z) / math.log(2)
    assert SkewNormal(0, 0, 1).log2_cdf(np.array([z]))[0] == pytest.approx(exact, rel=1e-9)
    assert SkewNormal(1, 0, 1).log2_cdf(np.array([z]))[0] == pytest.approx(2 * exact, rel=1e-8)


def test_a_fit_finds_its_own_parameters() -> None:
    found = fit_skew_normal(skewnorm(4, 10, 2).rvs(20_000, random_state=2))
    assert (found.shape, found.location, found.scale) == pytest.approx((4, 10, 2), rel=0.1)


def test_continuations_are_greedy_or_drawn_among_the_likeliest() -> None:
    start = torch.zeros(500, 1, dtype=torch.int64)
    assert continued(bigram(TABLE), start[:1], 3).tolist() == [[0, 1, 0, 1]]  # type: ignore[arg-type]
    stream = torch.Generator().manual_seed(0)
    drawn = continued(bigram(TABLE), start, 1, stream=stream, top=2)[:, 1]  # type: ignore[arg-type]
    assert set(drawn.tolist()) == {0, 1}
    chance = math.exp(2) / (1 + math.exp(2))
    assert abs((drawn == 1).double().mean() - chance) < 5 * math.sqrt(chance * (1 - chance) / 500)


def test_prefix_extraction_finds_what_the_model_repeats() -> None:
    sharp = TABLE * 20
    sequences = torch.tensor([[0, 1, 0, 1, 0], [2, 2, 2, 2, 2], [0, 2, 2, 0, 1]])
    found = attacks.extract_from_prefixes(bigram(sharp), sequences, prefix_length=2)  # type: ignore[arg-type]
    assert found.matches.tolist() == [True, True, False]
    assert found.exact.count == 2
    assert found.chances[:2] == pytest.approx([1, 1], abs=1e-6)
    assert found.within(1).count == 2
    assert found.within(10**9).count == 2  # the third has a chance below e^-60


def test_extraction_ranks_memorised_text_first() -> None:
    """A model that wrote either a training sentence or noise: the sentence costs few bits for its zlib length."""
    alphabet = "abcdefghijklmnopqrstuvwxyz "
    secret = "the quick brown fox jumps over the lazy dog by night"
    row = torch.tensor([alphabet.index(letter) for letter in secret])

    def model(tokens: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, len(alphabet))
        known = tokens[:, 0] == row[0]
        places = torch.arange(tokens.shape[1]).clamp(max=len(row) - 2)
        logits[known[:, None] & torch.ones_like(tokens, dtype=torch.bool), row[places + 1].repeat(int(known.sum()))] = (
            30
        )
        return logits

    starts = torch.tensor([[int(row[0])]] * 3 + [[int(row[1])]] * 20)
    decode = lambda tokens: "".join(alphabet[token] for token in tokens)  # noqa: E731
    for rank_by in ("zlib", "perplexity"):
        found = attacks.extract(
            model,
            starts,
            decode=decode,
            training_text=f"once {secret} and again",
            length=len(row) - 1,
            match_length=30,
            rank_by=rank_by,
            top=None,
            rng=Rng.from_seed(1),
        )
        assert found.candidates[0].memorised == secret[1:]
        assert [item.memorised for item in found.candidates[1:]] == [None] * 20
        assert len(found.candidates) == 21  # the three equal ones are one
        assert found.precision(1).value == 1
        assert found.to_dict()["memorised"] == 1


def test_a_module_answers_like_transformers_and_is_left_in_its_mode() -> None:
    class Answer:
        def __init__(self, logits: Tensor) -> None:
            self.logits = logits

    class Model(nn.Module):
        def forward(self, tokens: Tensor) -> Answer:
            assert not self.training
            return Answer(TABLE[tokens])

    model = Model()
    tokens = torch.tensor([[0, 1, 2]])
    assert token_bits(model, tokens) == pytest.approx(token_bits(bigram(TABLE), tokens))  # type: ignore[arg-type]
    assert model.training


@pytest.mark.parametrize(
    "call",
    [
        lambda: exposure_of([], [1.0]),
        lambda: exposure_of([math.nan], [1.0]),
        lambda: exposure_of([1.0], [1.0] * 20, method="extrapolate"),
        lambda: token_bits(bigram(TABLE), torch.zeros(2, 1, dtype=torch.int64)),  # type: ignore[arg-type]
        lambda: token_bits(bigram(TABLE), torch.zeros(2, 3)),  # type: ignore[arg-type]
        lambda: token_bits(lambda tokens: TABLE, torch.zeros(2, 3, dtype=torch.int64)),
        lambda: token_bits(bigram(TABLE * math.nan), torch.zeros(2, 3, dtype=torch.int64)),  # type: ignore[arg-type]
    ],
)
def test_what_has_no_answer_is_refused(call: object) -> None:
    with pytest.raises(InvalidValue):
        call()  # type: ignore[operator]
