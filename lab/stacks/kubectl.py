"""The `kubectl` command: what a namespace holds, ways to its ports, and programs in its containers.

Which cluster that is, and as whom it is asked, is kubectl's own affair: KUBECONFIG and the current context count, as
they do when a person types the command.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lab.errors import StackError, UsageError
from lab.stacks.processes import Child

Namespace = Annotated[
    str,
    typer.Option("--namespace", help="Kubernetes: the namespace of a release of the chart.", metavar="NAME"),
]
NO_KUBECTL = (
    "there is no kubectl on this machine. Install it; what runs natively (`bin/lab run ID`) needs none."
)
NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""What Kubernetes takes as a namespace's name. Nothing else reaches kubectl's command line."""
KUBECTL_S = 30.0
FORWARD_S = 20.0
"""Seconds until a port-forward must listen."""
ANSWER_S = 10.0
"""Seconds until a program in a container must have answered a line."""
END = "END "
"""How the line begins that ends an answer of a program in a container."""

_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) -> (\d+)")
_REPEATED = "command terminated with exit code"
_LOG_LINE = re.compile(r"[EWI]\d{4} ")
"""How a line begins with which kubectl explains to its own developers what failed; the last line is for people."""
_AWAY = re.compile(
    r"connection to the server|unable to connect|connection refused|no such host|i/o timeout|no route to host"
    r"|unauthorized|must be logged in|no configuration has been provided|current-context|x509"
    r"|context .* does not exist|context was not found|invalid configuration|error loading config",
    re.IGNORECASE,
)


class Kubectl:
    """The `kubectl` command in one namespace. Errors are one line."""

    def __init__(self, namespace: str) -> None:
        """Raises `UsageError` for a text that is no namespace's name."""
        if not NAMESPACE.fullmatch(namespace):
            raise UsageError(f"--namespace takes a name such as team-7, not {namespace!r}.")
        self.namespace = namespace

    def words(self, *words: str) -> list[str]:
        """The command line of ``kubectl WORDS``."""
        return ["kubectl", "--namespace", self.namespace, *words]

    def ask(self, *words: str, seconds: float = KUBECTL_S) -> str:
        """The stdout of ``kubectl WORDS``. Raises `StackError` when kubectl is missing, fails or takes too long."""
        code, out, said = self._run(words, seconds)
        if code:
            raise StackError(complaint(words, said or out, self.namespace))
        return out

    def json(self, *words: str) -> Any:
        """The answer of ``kubectl WORDS --output json``. Raises `StackError` as `ask` does."""
        said = self.ask(*words, "--output", "json")
        try:
            return json.loads(said)
        except ValueError as error:
            raise StackError(f"kubectl {words[0]} says something unexpected: {error}") from error

    def may(self, verb: str, resource: str, part: str = "") -> bool:
        """True if the user may do this here; `part` is a part of the resource, such as exec of pods.

        Raises `StackError` when no cluster answers.
        """
        more = [f"--subresource={part}"] if part else []
        words = ("auth", "can-i", verb, resource, *more)
        code, out, said = self._run(words, KUBECTL_S)
        if (answer := out.strip().partition("\n")[0]) in (
            "yes",
            "no",
        ):  # exit code 1 is both a no and a failure
            return answer == "yes"
        raise StackError(complaint(words, said or out or f"exit code {code} and no answer", self.namespace))

    def _run(self, words: Sequence[str], seconds: float) -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                self.words(*words),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            raise StackError(NO_KUBECTL) from None
        except OSError as error:
            raise StackError(f"kubectl cannot be started: {error.strerror}.") from error
        except subprocess.TimeoutExpired:
            raise StackError(
                f"the cluster does not answer kubectl {words[0]} within {seconds:g} s."
            ) from None
        return done.returncode, done.stdout, done.stderr


def check_namespace(stack: str, namespace: str) -> None:
    """Raise `UsageError` if a namespace is missing, is no name, or is given for another stack."""
    if stack == "kubernetes":
        if not namespace:
            raise UsageError("--stack kubernetes needs the namespace of a release: --namespace NAME.")
        Kubectl(namespace)
    elif namespace:
        raise UsageError("--namespace is for --stack kubernetes.")


def complaint(words: Sequence[str], said: str, namespace: str) -> str:
    """One line from what kubectl said on stderr: no cluster, no right, or else kubectl's own last words."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line for line in lines if not _LOG_LINE.match(line) and not line.startswith("Warning:")] or lines
    last = told[-1] if told else "failed without a message"
    if "(Forbidden)" in said or " forbidden: " in said:
        line = next((line for line in told if "orbidden" in line), last)
        return (
            f"no right to do this in the namespace {namespace}: {line.removeprefix('Error from server (Forbidden): ')} "
            "(deploy/README.md has the rights that a run needs)"
        )
    if _AWAY.search(last):
        return f"no cluster answers kubectl: {last.removeprefix('error: ')}"
    return f"kubectl {' '.join(words[:2])}: {last.removeprefix('error: ')}"


class KubectlChild(Child):
    """A kubectl that goes on. Its last words are those of the program in the container, where there is one."""

    def last_words(self) -> str:
        """The last line of its log before the one in which kubectl repeats the program's exit code."""
        try:
            lines = [
                line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()
            ]
        except OSError:
            return ""
        told = [line for line in lines if not line.startswith(_REPEATED)] or lines
        return told[-1][-300:] if told else ""


class Forward:
    """A `kubectl port-forward` to ports of a pod, each on a free port of 127.0.0.1. It ends when the lab does.

    Start it in the main thread: see `Child.start_again`.
    """

    def __init__(self, kubectl: Kubectl, pod: str, ports: Sequence[int], log: Path) -> None:
        """Start it without waiting for it. Raises `StackError` when kubectl cannot be started."""
        self._kubectl, self._pod, self._log = kubectl, pod, log
        self._wanted = len(ports)
        # ":PORT" has kubectl choose a free one, and say which: no other program can take it in between.
        self._start([f":{port}" for port in ports])

    def _start(self, ports: Sequence[str]) -> None:
        self._local: dict[int, int] = {}
        self._told = threading.Event()
        words = self._kubectl.words("port-forward", "--address", "127.0.0.1", f"pod/{self._pod}", *ports)
        self._child = KubectlChild(f"kubectl port-forward to {self._pod}", words, self._log, pipe=True)
        # Each thread has its own: that of a forward that has ended must not say that the next one listens.
        its_own = (self._child, self._local, self._told)
        threading.Thread(target=self._listen, args=its_own, name=f"forward-{self._pod}", daemon=True).start()

    def again(self) -> None:
        """If it has ended, start it anew at the same local ports, so that clients keep their addresses; wait for it.

        A way that cannot be had again stays closed, and `port` says why.
        """
        if self._child.alive() or len(self._local) < self._wanted:
            return
        self._child.stop()
        ports = list(self._local)
        self._start([f"{local}:{inside}" for inside, local in self._local.items()])
        with contextlib.suppress(StackError):
            self.port(ports[0])

    def _listen(self, child: Child, local: dict[int, int], told: threading.Event) -> None:
        """Read to the end: kubectl prints a line for each connection, and would stop at a full pipe."""
        with contextlib.suppress(ValueError):  # the pipe was closed while we read
            for line in child.lines():
                if found := _FORWARDING.search(line.decode(errors="replace")):
                    local[int(found[2])] = int(found[1])
                    if len(local) == self._wanted:
                        told.set()
        told.set()

    def port(self, inside: int) -> int:
        """The port of 127.0.0.1 that leads to a port of the pod. Waits until it listens.

        Raises `StackError` when the forward ends, or does not listen within `FORWARD_S`.
        """
        if not self._told.wait(FORWARD_S):
            raise StackError(f"{self._child.name} does not listen within {FORWARD_S:g} s.")
        if inside not in self._local:
            self._child.exit_code()
            said = self._child.last_words() or "it ended without a message"
            raise StackError(complaint(("port-forward",), said, self._kubectl.namespace))
        return self._local[inside]

    def url(self, inside: int, scheme: str = "http") -> str:
        """The base URL of a port of the pod."""
        return f"{scheme}://127.0.0.1:{self.port(inside)}"

    def check(self) -> None:
        """Raise `StackError` if it has ended."""
        self._child.check()

    def close(self) -> None:
        """End it. Safe to call twice."""
        self._child.stop()


class Inside:
    """A program in a container that answers each line of its stdin: with some lines, then `END` and that line again.

    One `kubectl exec` that goes on costs much less than one for each answer. It ends with its stdin, and so with the
    lab. Start it in the main thread: see `Child.start_again`.
    """

    def __init__(self, kubectl: Kubectl, pod: str, container: str, program: Sequence[str], log: Path) -> None:
        self._kubectl = kubectl
        self._answers: queue.Queue[tuple[str, list[str]] | None] = queue.Queue()
        self._asked = 0
        words = kubectl.words("exec", "--stdin", pod, "--container", container, "--", *program)
        self._child = KubectlChild(f"kubectl exec into {container}", words, log, pipe=True, stdin_open=True)
        threading.Thread(target=self._listen, name=f"inside-{container}", daemon=True).start()

    def _listen(self) -> None:
        lines: list[str] = []
        with contextlib.suppress(ValueError):  # the pipe was closed while we read
            for raw in self._child.lines():
                line = raw.decode(errors="replace").rstrip("\r\n")
                if line.startswith(END):
                    self._answers.put((line.removeprefix(END), lines))
                    lines = []
                else:
                    lines.append(line)
        self._answers.put(None)

    def ask(self) -> None:
        """Ask for an answer, which `answer` returns. That the program has ended is told there, not here."""
        self._asked += 1
        stdin = self._child.process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            stdin.write(b"%d\n" % self._asked)
            stdin.flush()

    def answer(self, seconds: float = ANSWER_S) -> list[str]:
        """The lines of the answer that was asked for last; earlier ones that came too late are dropped.

        Raises `StackError` when the program has ended, or does not answer within `seconds`.
        """
        end = time.monotonic() + seconds
        while True:
            try:
                found = self._answers.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise StackError(f"{self._child.name} gets no answer within {seconds:g} s.") from None
            if found is None:
                self._answers.put(None)  # for whoever asks next
                self._child.exit_code()
                said = self._child.last_words() or "it ended without a message"
                raise StackError(complaint(("exec",), said, self._kubectl.namespace))
            number, lines = found
            if number == str(self._asked):
                return lines

    def alive(self) -> bool:
        """True while it runs."""
        return self._child.alive()

    def close(self) -> None:
        """End it. Safe to call twice."""
        self._child.stop()
