"""An HTTP client for Prometheus or Tempo, with a one-line error if the server does not answer."""

from __future__ import annotations

from typing import Any, Self

import httpx

from lab.replay import NoAnswer

ANSWER_S = 60.0


class Client:
    """A server's HTTP interface; `with` closes it. Methods raise `NoAnswer` when the server does not answer."""

    name = "the server"

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, timeout=ANSWER_S, trust_env=False)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request; return any answer, even a refusal. `options`: parameters, headers, content, as in httpx."""
        try:
            return self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise NoAnswer(f"{self.name} does not answer at {self.url} ({why}).") from error


def refusal(answer: httpx.Response) -> str:
    """Return a server's reason for a refusal, on one line, or the status code if it gave none."""
    return " ".join(answer.text.split())[:200] or str(answer.status_code)
