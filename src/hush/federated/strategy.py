"""The strategy for Flower's message API: `ServerApp` and `ClientApp`, simulated or with SuperNodes.

A client gets the model in the record "arrays" and "config", trains, and replies with its own model under "arrays".
Metrics and numbers of examples are not read: they are private, and no noise is paid for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from logging import INFO
from typing import TYPE_CHECKING, Any

from hush import _check
from hush.errors import InvalidValue, MissingExtra
from hush.federated.mod import CLIP_NORM, CLIPPED
from hush.federated.rounds import PrivateRounds, RoundReport, wait_for
from hush.privacy import Guarantee

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
    from flwr.common.logger import log
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
except ImportError:
    raise MissingExtra("hush.federated needs Flower; run: pip install 'hush[federated]'") from None

if TYPE_CHECKING:
    from hush.ledger import Account
    from hush.rng import Rng
    from hush.training.plan import TrainingPlan


class PrivateFedAvg(Strategy):
    """Federated averaging with central differential privacy for whole clients.

        strategy = PrivateFedAvg(plan, account=account)
        strategy.start(grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=plan.steps)
        strategy.guarantee()

    Clients are asked to train, never to evaluate: an accuracy that they send back would be one more release. Evaluate
    on public data by `evaluate_fn`.

    Args:
        plan: Its steps are the rounds, `expected_batch_size` the expected number of clients in one.
        least_clients: Wait in the first round until so many are connected; a public number.
        patience: Seconds to wait for them.
        account: Charged before each release.
        rate: The server's step along the noisy mean update.
        rng: A seeded source, for tests only.
        note: For the rows of the ledger.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        *,
        least_clients: int = 1,
        patience: float = 3600.0,
        account: Account | None = None,
        rate: float = 1.0,
        rng: Rng | None = None,
        note: str = "",
    ) -> None:
        self.plan = plan
        self.reports: list[RoundReport] = []
        self._least = _check.whole("least_clients", least_clients)
        self._patience = _check.positive("patience", patience)
        self._settings: dict[str, Any] = {"account": account, "rate": rate, "rng": rng, "note": note}
        self._rounds: PrivateRounds | None = None

    def guarantee(self) -> Guarantee:
        """What the rounds so far cost, for one client with all its data."""
        return self._begun().guarantee()

    def _begun(self) -> PrivateRounds:
        if self._rounds is None:
            raise InvalidValue("no round has begun: call start(grid, initial_arrays=...) first.")
        return self._rounds

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients and send them the model."""
        if self._rounds is None:
            plain = {name: value.numpy() for name, value in arrays.items()}
            self._rounds = PrivateRounds(self.plan, plain, **self._settings)
            wait_for(lambda: len(set(grid.get_node_ids())), self._least, self._patience)
        chosen = self._rounds.choose(grid.get_node_ids())
        config["server-round"], config[CLIP_NORM] = server_round, self._rounds.clip_norm.value
        record = RecordDict({"arrays": _record(self._rounds), "config": config})
        return [Message(content=record, message_type=MessageType.TRAIN, dst_node_id=int(str(node))) for node in chosen]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model, after its charge. Always one, whoever replied; and no metrics."""
        rounds = self._begun()
        answers: dict[Any, dict[str, Any]] = {}
        above = set()
        for reply in replies:
            client = reply.metadata.src_node_id
            if client in rounds.asked and client not in answers:  # a second reply of one client does not count
                answers[client] = {} if reply.has_error() else _arrays(reply)
                if not reply.has_error() and CLIPPED in reply.content:
                    above.add(client)
        self.reports.append(rounds.finish(answers, above=above))
        return _record(rounds), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody is asked."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing."""
        return None

    def summary(self) -> None:
        """Tell the plan; it is public."""
        log(INFO, "\t├──> %s rounds, noise multiplier %s", self.plan.steps, self.plan.noise_multiplier)
        log(INFO, "\t└──> %s sampling, clip norm %s", self.plan.sampling, self.plan.clip_norm)


def _arrays(reply: Message) -> dict[str, Any]:
    """The model in a reply; nothing where there is none or it cannot be read."""
    try:
        return {name: value.numpy() for name, value in reply.content.array_records["arrays"].items()}
    except Exception:  # whatever a client sends must not stop the others
        return {}


def _record(rounds: PrivateRounds) -> ArrayRecord:
    return ArrayRecord(array_dict={name: Array(value) for name, value in rounds.arrays.items()})
