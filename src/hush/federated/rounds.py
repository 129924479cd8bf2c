"""Rounds of federated averaging, private for whole clients: who takes part, and what the server makes of their updates.

    >>> import numpy
    >>> from hush import TrainingPlan
    >>> plan = TrainingPlan(noise_multiplier=1.0, sampling_prob=0.5, expected_batch_size=2, steps=3, clip_norm=1.0,
    ...                     delta=1e-5)
    >>> rounds = PrivateRounds(plan, {"weight": numpy.zeros(3, dtype=numpy.float32)})
    >>> chosen = rounds.choose([11, 12, 13, 14])
    >>> report = rounds.finish({client: {"weight": numpy.ones(3)} for client in chosen})
    >>> rounds.arrays["weight"].shape, report.number
    ((3,), 1)

A step of the plan is a round, a unit is a client with all its data, `expected_batch_size` is the expected number of
clients [McMahan, Ramage, Talwar, Zhang 2018, Alg. 1, with a fixed divisor]. Each client's update is clipped as a whole,
the clipped ones are added up, noise is added and the sum is divided by the constant. A client that does not answer, or
answers what is not a finite update of the right shape, adds nothing: less than anybody may. So neither failures nor
silence weaken the guarantee, and a round without a single answer still releases noise, and is paid for: to skip it
would tell that nobody was there.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
import torch
from numpy.typing import NDArray

from hush import _check
from hush.errors import InvalidValue, WorkerLost
from hush.federated.updates import Arrays, clip_factor, norm_of, update_of
from hush.mechanisms import gaussian
from hush.privacy import Guarantee
from hush.rng import Rng
from hush.sampling import FullBatch, OrderedPasses, Poisson, bernoulli_rows
from hush.training.charges import Charges
from hush.training.clipping import ClipNorm
from hush.training.costs import cost
from hush.training.noise_choice import noise_source

if TYPE_CHECKING:
    from hush.ledger import Account
    from hush.training.plan import TrainingPlan

Client = Hashable  # whatever names a client for good
_KEY_BYTES = 32
_LOOK_EVERY = 0.5  # seconds


@dataclass(frozen=True)
class RoundReport:
    """What the server saw in a round. `number` and `clip_norm` may be shown; the rest was read without noise."""

    number: int
    clip_norm: float
    asked: int
    answered: int
    refused: int  # answers that were no finite update of the right shape


class PrivateRounds:
    """The server's side of private federated averaging, whatever carries the messages.

    Call `choose` and `finish` in turns. `arrays` is the model, and may be published after every `finish`.

    Args:
        plan: Its steps are the rounds. Sampling "poisson", "full_batch", or "ordered" for correlated noise.
        arrays: The first model: public, never a client's own.
        account: Charged before each release.
        rate: The server's step along the noisy mean update.
        rng: A seeded source, for tests only.
        note: For the rows of the ledger.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        arrays: Mapping[str, NDArray[Any]],
        *,
        account: Account | None = None,
        rate: float = 1.0,
        rng: Rng | None = None,
        note: str = "",
    ) -> None:
        _check_plan(plan)
        self.plan = plan
        self.arrays: Arrays = {name: _checked(name, value) for name, value in arrays.items()}
        if not self.arrays:
            raise InvalidValue("the model has no arrays to learn.")
        self.clip_norm = ClipNorm(plan.clip_norm, plan.adaptive, plan.expected_batch_size)
        self._rate = _check.positive("rate", rate)
        self._charges = Charges(plan, account, note=note, block=1, first=0)
        self._rng = rng or Rng.from_entropy()
        self._noise = noise_source(plan, self._rng, 0)
        self._stream = self._rng.stream("clients of rounds")
        self._key = self._rng.stream("turns of clients").bytes(_KEY_BYTES)
        self._asked: frozenset[Client] | None = None

    @property
    def asked(self) -> frozenset[Client]:
        """The clients of the round that is under way."""
        return self._asked or frozenset()

    @property
    def done(self) -> int:
        """How many rounds were released."""
        return self._charges.steps

    def choose(self, clients: Iterable[Client]) -> list[Client]:
        """Who takes part in the next round, of those that are there. Keep it from everybody but them.

        Raises:
            BudgetExceeded: the plan or its budget has no further round; nobody is to be asked.
        """
        self._charges.require_room()
        there = sorted(set(clients), key=str)
        sampler = self.plan.sampler
        if isinstance(sampler, OrderedPasses):
            turn = self.done % sampler.steps_per_pass
            chosen = [client for client in there if self._turn(client, sampler.steps_per_pass) == turn]
        elif isinstance(sampler, Poisson):
            chosen = [there[place] for place in bernoulli_rows(len(there), sampler.sampling_prob, self._stream)]
        else:
            chosen = there
        self._asked = frozenset(chosen)
        return chosen

    def _turn(self, client: Client, turns: int) -> int:
        """The round of each pass in which a client takes part.

        By its name and a secret key, so that no other client's coming or going moves it, as `MatrixGaussian` asks.
        """
        found = hashlib.blake2b(str(client).encode(), key=self._key, digest_size=8).digest()
        return int.from_bytes(found, "little") % turns

    def finish(self, answers: Mapping[Client, Mapping[str, Any]], *, above: Collection[Client] = ()) -> RoundReport:
        """Move the model by the noisy mean of the answers: each chosen client's model after its own training.

        Args:
            answers: By client.
            above: Those who clipped their update themselves; only a clip norm that follows the updates asks.

        Raises:
            BudgetExceeded: the round does not fit under the account's cap. Nothing was released; the model stays.
        """
        if self._asked is None:
            raise InvalidValue("a round begins with choose(clients).")
        strangers = [client for client in answers if client not in self._asked]
        if strangers:
            raise InvalidValue(f"client {strangers[0]!r} was not asked in this round; give the answers of the chosen.")
        clip_norm, asked = self.clip_norm.value, len(self._asked)
        total, norms = self._clipped_sum(answers)
        number = self._charges.start(self._charges.charge())  # on disk before any noisy value exists
        self._asked = None
        self._move(total, clip_norm)
        if self.plan.adaptive is not None:
            # A refused answer (NaN) counts as above the clip norm, a missing one not at all; both move it by 1/2.
            found = [numpy.nan if client in above else norm for client, norm in norms.items()]
            count = self.clip_norm.centred_count(torch.tensor(found, dtype=torch.float64))
            noise = 2 * self.plan.adaptive.count_stddev
            self.clip_norm.update(float(gaussian(count, sensitivity=0.5, noise_multiplier=noise, rng=self._rng)))
        refused = sum(1 for norm in norms.values() if numpy.isnan(norm))
        return RoundReport(number, clip_norm, asked, len(answers), refused)

    def guarantee(self) -> Guarantee:
        """What the rounds so far cost, for one client with all its data."""
        return cost(self._charges.event, delta=self.plan.delta, relation=self.plan.relation)

    def _clipped_sum(self, answers: Mapping[Client, Mapping[str, Any]]) -> tuple[Arrays, dict[Client, float]]:
        """The sum of the clipped updates, and the length of each before; NaN where an answer is no update."""
        total = {name: numpy.zeros(value.shape) for name, value in self.arrays.items()}
        norms: dict[Client, float] = {}
        for client, answer in answers.items():
            update = update_of(self.arrays, answer)
            norms[client] = numpy.nan if update is None else norm_of(update)
            for name, change in (update or {}).items():
                total[name] += clip_factor(norms[client], self.clip_norm.value) * change
        return total, norms

    def _move(self, total: Arrays, clip_norm: float) -> None:
        sums = {name: torch.from_numpy(value) for name, value in total.items()}
        noisy = self._noise.add(sums, self.plan.gradient_noise_multiplier * clip_norm)
        share = self._rate / self.plan.expected_batch_size
        self.arrays = {
            name: (value + share * noisy[name].numpy()).astype(value.dtype) for name, value in self.arrays.items()
        }


def wait_for(count: Callable[[], int], least: int, patience: float) -> None:
    """Wait until so many clients are there, so many seconds at most."""
    deadline = time.monotonic() + patience
    while count() < least:
        if time.monotonic() > deadline:
            raise WorkerLost(f"fewer than {least} clients were there after {patience:g} seconds.")
        time.sleep(_LOOK_EVERY)


def _checked(name: str, value: NDArray[Any]) -> NDArray[Any]:
    array = numpy.array(value)
    if array.dtype.kind != "f":
        raise InvalidValue(f"array {name!r} holds {array.dtype}: only real numbers can be noised; leave it out.")
    if not numpy.isfinite(array).all():
        raise InvalidValue(f"array {name!r} of the first model is not finite.")
    return array


def _check_plan(plan: TrainingPlan) -> None:
    if not plan.private:
        raise InvalidValue("a plan without privacy makes no private rounds.")
    if not isinstance(plan.sampler, Poisson | FullBatch | OrderedPasses):
        raise InvalidValue(f"rounds need sampling 'poisson', 'full_batch' or 'ordered'; got {plan.sampling!r}.")
    odd = {"clipping": "flat", "augmentations": 1, "average": "none", "project_to": None}
    for name, usual in odd.items():
        if getattr(plan, name) != usual:
            raise InvalidValue(f"rounds have no {name}={getattr(plan, name)!r}; leave it out of the plan.")
