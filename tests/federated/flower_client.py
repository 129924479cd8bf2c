"""A Flower client in a process of its own: `python flower_client.py ADDRESS KIND`; "dies" is killed in round 2."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

from flwr.client import NumPyClient, start_client


class Client(NumPyClient):
    def fit(self, parameters: Any, config: Any) -> Any:
        if sys.argv[2] == "dies" and config["server-round"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return [value + 10.0 for value in parameters], 100, {"loss": 0.1}


if __name__ == "__main__":
    start_client(server_address=sys.argv[1], client=Client().to_client(), insecure=True, max_wait_time=120)
