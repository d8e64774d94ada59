"""A container's health check. It is cheap, because a dozen containers run it as a new process every few seconds.

    python -SI app/health.py URL                    healthy: the answer is 200
    python -SI app/health.py URL --contains TEXT    ... and TEXT is in it (spaces in the answer do not count)
    python -SI app/health.py URL --fresh METRIC     ... and METRIC, a Unix time, is at most 15 s old

An answer does not prove that the process works: `--fresh` is for processes whose metrics are served by a thread of
their own, which goes on answering when the working loop hangs. Only `_socket` is imported, the part of `socket` that is
written in C (importing `socket` takes 6 ms, urllib 60), and `-SI` leaves the packages out: a check takes 9 ms. Exits
with 0 or 1 and prints one line that says why; Docker keeps the line.
"""

import _socket
import sys
import time

SECONDS_TO_ANSWER = 4.0
STALE_SECONDS = 15.0


def fetch(url: str) -> tuple[int, str]:
    """Status and body. Raises OSError or ValueError when there is no HTTP answer."""
    host_port, _, path = url.removeprefix("http://").partition("/")
    host, _, port = host_port.partition(":")
    connection = _socket.socket()  # IPv4, TCP
    try:
        connection.settimeout(SECONDS_TO_ANSWER)
        connection.connect((host, int(port)))
        connection.sendall(f"GET /{path} HTTP/1.0\r\nHost: {host_port}\r\n\r\n".encode())
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    finally:
        connection.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(None, 2)[1]), body.decode(errors="replace")


def age(body: str, metric: str) -> float:
    """Seconds since the Unix time that `metric` holds in a Prometheus exposition; infinity if it is missing."""
    for line in body.splitlines():
        if line.startswith((metric + " ", metric + "{")):
            return time.time() - float(line.rsplit(" ", 1)[1])
    return float("inf")


def trouble(url: str, option: str = "", value: str = "") -> str | None:
    """Return the problem in one line, or None."""
    try:
        status, body = fetch(url)
        if status != 200:
            return f"{url} answers {status}"
        if option == "--contains" and value not in "".join(body.split()):
            return f"the answer of {url} does not contain {value}"
        if option == "--fresh" and (seconds := age(body, value)) > STALE_SECONDS:
            return f"{value} is missing or too old ({seconds:.0f} s, above {STALE_SECONDS:.0f} s): the process may hang"
    except (OSError, ValueError, IndexError) as error:
        return f"{url}: {error or type(error).__name__}"
    return None


if __name__ == "__main__":
    found = trouble(*sys.argv[1:])
    print(found or "ok")
    sys.exit(1 if found else 0)
