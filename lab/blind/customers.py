"""Locust, which ends with this program's stdin: for a session that cannot end the process in any other way.

`python -m lab.blind.customers ARGUMENTS` takes Locust's own arguments. Locust is a process of its own, because it
replaces parts of the standard library, and would stand still beside a thread that waits for stdin.
"""

from __future__ import annotations

import subprocess
import sys
import threading

from loadtest.arguments import stop_with_stdin


def main() -> int:
    """Send requests until stdin ends; return Locust's exit code."""
    locust = subprocess.Popen([sys.executable, "-m", "locust", *sys.argv[1:]], stdin=subprocess.DEVNULL)
    threading.Thread(target=stop_with_stdin, args=(locust.terminate,), name="stdin", daemon=True).start()
    return locust.wait()


if __name__ == "__main__":
    sys.exit(main())
