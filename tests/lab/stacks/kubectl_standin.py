"""A stand-in for the `kubectl` command: pods are processes of this machine, described in a folder.

FAKE_KUBECTL names the folder:
    pods.json      [{pod, uid, node, component, instance, ending, containers: [{service, env, ports: {inside: outside},
                   memory, running, ready, restarts, why, pid, restart: [command]}]}]
    denied.json    what the user may not do, such as ["delete pods", "create pods/exec"]
    reading.txt    what a container reads of its control group and its node; reading-SERVICE.txt for one of them
    calls.log      written: one JSON list of words a call, without the namespace
    fail.json      {"words": "get pods", "said": "text on stderr", "code": 1}: that call fails
    lost-POD       if it exists, the port-forwards to this pod end, as kubectl's own do
    ended-SERVICE  if it exists, programs in this container end, as they do with the container
    slow           if it exists, no port-forward says that it listens
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["FAKE_KUBECTL"])


def pods() -> list[dict[str, Any]]:
    return list(json.loads((FOLDER / "pods.json").read_text()))


def pod_of(name: str) -> dict[str, Any]:
    return next((pod for pod in pods() if pod["pod"] == name), {"uid": "", "containers": []})


def described(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod as the API server describes it."""
    meta = {
        "name": pod["pod"],
        "uid": pod["uid"],
        "labels": {
            "app.kubernetes.io/name": "redis-latency-lab",
            "app.kubernetes.io/instance": pod.get("instance", "lab"),
            "app.kubernetes.io/component": pod["component"],
        },
    }
    meta |= {"deletionTimestamp": "2026-11-26T10:00:00Z"} if pod.get("ending") else {}
    spec, told = [], []
    for each in pod["containers"]:
        env = [{"name": name, "value": value} for name, value in each.get("env", {}).items()]
        limits = {"memory": each["memory"]} if "memory" in each else {}
        spec.append({"name": each["service"], "env": env, "resources": {"limits": limits}})
        running = {"running": {}} if each.get("running", True) else {"waiting": {"reason": each["why"]}}
        told.append(
            {
                "name": each["service"],
                "ready": each.get("ready", True),
                "restartCount": each.get("restarts", 0),
                "state": running,
            }
        )
    return {
        "metadata": meta,
        "spec": {"nodeName": pod.get("node", "node-1"), "containers": spec},
        "status": {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": told},
    }


def delete(name: str) -> None:
    """End the pod's process, and start a new one under a new uid, as a StatefulSet does."""
    found = pods()
    for pod in found:
        if pod["pod"] != name:
            continue
        for each in pod["containers"]:
            if "restart" not in each:
                continue
            os.kill(each["pid"], signal.SIGTERM)
            while Path(f"/proc/{each['pid']}/stat").exists() and "Z" not in _state(each["pid"]):
                time.sleep(0.02)
            with (FOLDER / "restarted.log").open("ab") as sink:
                child = subprocess.Popen(
                    each["restart"],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    start_new_session=True,
                )
            each["pid"] = child.pid
        pod["uid"] += "-again"
    part = FOLDER / "pods.json.part"
    part.write_text(json.dumps(found))
    part.replace(FOLDER / "pods.json")  # in one piece: shells in all pods read it


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def forward(words: list[str]) -> int:
    """Say which ports lead to the pod; they are those at which its processes listen anyway.

    kubectl's own ends at the first connection to a port where nothing listens. This one does so at once, for the ports
    that a container has as `late`.
    """
    name = next(word for word in words if word.startswith("pod/")).removeprefix("pod/")
    ports = {
        inside: outside for each in pod_of(name)["containers"] for inside, outside in each["ports"].items()
    }
    if not pod_of(name)["uid"]:
        print(f'Error from server (NotFound): pods "{name}" not found', file=sys.stderr)
        return 1
    wanted = {}
    for word in words:
        own, colon, inside = word.partition(":")
        if colon and inside.isdigit():
            wanted[inside] = int(own or ports.get(inside, 1))
    for inside, local in wanted.items():
        if not (FOLDER / "slow").exists():
            print(f"Forwarding from 127.0.0.1:{local} -> {inside}", flush=True)
    late = {port for each in pod_of(name)["containers"] for port in each.get("late", ())}
    silent = any(socket.socket().connect_ex(("127.0.0.1", ports[port])) for port in late & set(wanted))
    while not (silent or (FOLDER / f"lost-{name}").exists()):
        time.sleep(0.05)
    print("error: lost connection to pod", file=sys.stderr)
    return 1


def answer_lines(name: str, service: str) -> int:
    """Answer each line with what the container reads, until stdin, the container or its pod ends."""
    uid, own = pod_of(name)["uid"], FOLDER / f"reading-{service}.txt"
    asked = b""
    while pod_of(name)["uid"] == uid and not (FOLDER / f"ended-{service}").exists():
        if not select.select([0], [], [], 0.2)[0]:
            continue
        if not (some := os.read(0, 4096)):
            return 0
        asked += some
        *lines, asked = asked.split(b"\n")
        for line in lines:
            print((own if own.exists() else FOLDER / "reading.txt").read_text(), end="")
            print(f"END {line.decode()}", flush=True)
    print("command terminated with exit code 137", file=sys.stderr)
    return 137


def execute(words: list[str]) -> int:
    """Do `exec`: readings are answered from files, everything else is a process of this machine."""
    at = words.index("--")
    name = next(word for word in words[1:at] if not word.startswith("--"))
    service, program = words[words.index("--container") + 1], words[at + 1 :]
    if not any(each["service"] == service for each in pod_of(name)["containers"]):
        print(f'error: unable to upgrade connection: container not found ("{service}")', file=sys.stderr)
        return 1
    if program[:2] == ["sh", "-c"] and "/sys/fs/cgroup" in program[2]:
        return answer_lines(name, service)
    os.chdir(os.environ["FAKE_KUBECTL_ROOT"])
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ |= next(each for each in pod_of(name)["containers"] if each["service"] == service).get(
        "env", {}
    )
    if program[0] == "env":
        variable, _, value = program[1].partition("=")
        os.environ[variable] = value
        program = program[2:]
    if program[0] == "python":
        program[0] = sys.executable
    return os.execvp(program[0], program)


def main(words: list[str]) -> int:
    assert words[0] == "--namespace", words
    words = words[2:]
    with (FOLDER / "calls.log").open("a") as log:
        log.write(json.dumps(words) + "\n")
    if (FOLDER / "fail.json").exists():
        fail = json.loads((FOLDER / "fail.json").read_text())
        if " ".join(words).startswith(fail["words"]):
            print(fail["said"], file=sys.stderr)
            return int(fail["code"])
    if words[:2] == ["get", "pods"]:
        print(json.dumps({"items": [described(pod) for pod in pods()]}))
    elif words[:2] == ["get", "node"]:
        info = {"kubeletVersion": "v1.34.2", "containerRuntimeVersion": "containerd://1.6.20"}
        print(json.dumps({"status": {"nodeInfo": info}}))
    elif words[0] == "version":
        print(json.dumps({"serverVersion": {"gitVersion": "v1.34.2"}}))
    elif words[:2] == ["auth", "can-i"]:
        part = next((f"/{word.partition('=')[2]}" for word in words if word.startswith("--subresource=")), "")
        denied = f"{words[2]} {words[3]}{part}" in json.loads((FOLDER / "denied.json").read_text())
        print("no" if denied else "yes")
        return int(denied)
    elif words[:2] == ["delete", "pod"]:
        delete(words[2])
    elif words[0] == "port-forward":
        return forward(words)
    elif words[0] == "exec":
        return execute(words)
    else:
        print(f"the stand-in does not know: {words}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
