"""The strategy for Flower's older gRPC server: `flwr.server.start_server` and `flwr.client.start_client`.

It names clients anew at every connection, so it cannot hold them to one turn in each pass: correlated noise needs
`PrivateFedAvg`. When nobody is chosen the server leaves the round out by itself; the round is then released here, and
`arrays` has the model that the next one starts from.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hush import _check
from hush.errors import InvalidValue, MissingExtra
from hush.federated.rounds import Client, PrivateRounds, RoundReport, wait_for
from hush.privacy import Guarantee

try:
    from flwr.common import (
        EvaluateIns,
        EvaluateRes,
        FitIns,
        FitRes,
        Parameters,
        Scalar,
        ndarrays_to_parameters,
        parameters_to_ndarrays,
    )
    from flwr.server.client_manager import ClientManager
    from flwr.server.client_proxy import ClientProxy
    from flwr.server.strategy import Strategy
except ImportError:
    raise MissingExtra("hush.federated needs Flower; run: pip install 'hush[federated]'") from None


class PrivateFedAvgServer(Strategy):
    """Federated averaging with central differential privacy for whole clients, for `start_server(strategy=...)`.

    Args:
        rounds: The first model and the plan. Clients get and send lists in the order of its arrays.
        least_clients: Wait in the first round until so many are connected; a public number.
        patience: Seconds to wait for them.
    """

    def __init__(self, rounds: PrivateRounds, *, least_clients: int = 1, patience: float = 3600.0) -> None:
        if rounds.plan.sampling == "ordered":
            raise InvalidValue("this server names clients anew when they come back; use PrivateFedAvg for 'ordered'.")
        self.reports: list[RoundReport] = []
        self._least = _check.whole("least_clients", least_clients)
        self._patience = _check.positive("patience", patience)
        self._rounds = rounds

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The model after the last round; it may be published."""
        return self._rounds.arrays

    def guarantee(self) -> Guarantee:
        """What the rounds so far cost, for one client with all its data."""
        return self._rounds.guarantee()

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """The first model; no client is asked for it."""
        return self._parameters()

    def _parameters(self) -> Parameters:
        return ndarrays_to_parameters(list(self.arrays.values()))

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Choose clients and send them the model."""
        if not self._rounds.done:
            wait_for(client_manager.num_available, self._least, self._patience)
        there = client_manager.all()
        chosen = self._rounds.choose(there)
        if not chosen:
            self.reports.append(self._rounds.finish({}))
        return [(there[str(client)], FitIns(self._parameters(), {"server-round": server_round})) for client in chosen]

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """The next model, after its charge. Always one, whoever answered; and no metrics."""
        answers: dict[Client, dict[str, Any]] = {
            proxy.cid: self._named(result) for proxy, result in results if proxy.cid in self._rounds.asked
        }
        self.reports.append(self._rounds.finish(answers))
        return self._parameters(), {}

    def _named(self, result: FitRes) -> dict[str, Any]:
        try:
            values = parameters_to_ndarrays(result.parameters)
        except Exception:  # whatever a client sends must not stop the others
            return {}
        return dict(zip(self.arrays, values, strict=True)) if len(values) == len(self.arrays) else {}

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Nobody is asked: an accuracy that clients send back would be one more release."""
        return []

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Nothing."""
        return None, {}

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Nothing; evaluate `arrays` on public data."""
        return None
