"""A language model behind HTTP: one POST for each call of `log_probs`, JSON both ways.

The request is `{"prefix": ..., "inputs": [...], "continuations": [...]}`, the answer `{"log_probs": [[[...]]]}` in the
order of `LanguageModel.log_probs`. The server sees every prompt, private examples and all: let it be one that may.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence

from hush import _check
from hush.errors import InvalidValue
from hush.prompts.language_model import TokenLogProbs

_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_LARGEST_ANSWER = 100_000_000  # bytes


class HttpModel:
    """Asks a server. Busy servers are asked again, `attempts` times in all, each time after twice the wait."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        attempts: int = 4,
        wait: float = 1.0,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidValue(f"url must begin with http:// or https://; got {url!r}.")
        self.url = url
        self.name = url
        self.timeout = _check.positive("timeout", timeout)
        self.attempts = _check.whole("attempts", attempts)
        self.wait = _check.nonnegative("wait", wait)
        self._headers = {"Content-Type": "application/json", **(headers or {})}

    def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
        """See `LanguageModel`.

        Raises:
            ConnectionError: The server did not answer; the message holds no part of the prompt.
        """
        question = {"prefix": prefix, "inputs": list(inputs), "continuations": list(continuations)}
        content = self._post(json.dumps(question).encode())
        try:
            found: TokenLogProbs = json.loads(content)["log_probs"]
        except (ValueError, KeyError, TypeError):
            raise ConnectionError(f'{self.url} did not answer with a JSON object that holds "log_probs".') from None
        return found

    def _post(self, body: bytes) -> bytes:
        request = urllib.request.Request(self.url, data=body, headers=self._headers, method="POST")
        reason: object = ""
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(self.wait * 2 ** (attempt - 1))
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                    content: bytes = answer.read(_LARGEST_ANSWER)
                    return content
            except urllib.error.HTTPError as error:
                reason = f"status {error.code}"
                error.close()
                if error.code not in _BUSY:
                    break
            except (urllib.error.URLError, TimeoutError, OSError) as error:
                reason = getattr(error, "reason", None) or error
        raise ConnectionError(f"{self.url} cannot be asked ({reason}); go on later with the same folder.")
