"""A stand-in for the `docker` command: containers are processes of this machine, described in a folder.

FAKE_DOCKER names the folder:
    containers.json   [{service, id, ports: {inside: outside}, env, health, pid, restart: [command], stopped, memory,
                      run, listens, files}]
                      `listens` maps each port that `compose up` may publish to a port of this machine
                      `run` holds what differs in a `compose run` of the service; each `run` adds run-NAME.json
    calls.log         written: one JSON list of words a call
    events.log        what `docker events` prints; `restart` appends the end of the container it restarts
    fail.json         {"words": "compose ps", "said": "text on stderr", "code": 1}: that call fails
    array             if it exists, `compose ps` answers as before Compose 2.21
    info.json         if it exists, what differs in the answer of `docker info`
    components        if it exists, what `docker version` says of the parts of the engine
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["FAKE_DOCKER"])


def containers() -> list[dict[str, Any]]:
    return list(json.loads((FOLDER / "containers.json").read_text()))


def all_there_is() -> list[dict[str, Any]]:
    return [*containers(), *(json.loads(file.read_text()) for file in FOLDER.glob("run-*.json"))]


def inspected(container: dict[str, Any]) -> dict[str, Any]:
    ports = {
        f"{inside}/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(outside)}]
        for inside, outside in container["ports"].items()
    }
    return {
        "Id": container["id"],
        "State": {"Pid": container.get("pid", 0), "Health": {"Status": container.get("health", "healthy")}},
        "Config": {
            "Env": [f"{name}={value}" for name, value in container.get("env", {}).items()],
            "Cmd": container.get("command"),
            "Labels": {
                "com.docker.compose.service": container["service"],
                "com.docker.compose.project.config_files": ",".join(container.get("files", [])),
            },
        },
        "HostConfig": {"Memory": container.get("memory", 0)},
        "NetworkSettings": {
            "Networks": {
                "default": {"IPAddress": (address := container.get("address", "")), "Gateway": address}
            },
            "Ports": {**ports, "9999/tcp": None},
        },
    }


def restart(identity: str) -> None:
    found = containers()
    for container in found:
        if container["id"] == identity:
            os.kill(container["pid"], signal.SIGTERM)
            while Path(f"/proc/{container['pid']}/stat").exists() and "Z" not in _state(container["pid"]):
                time.sleep(0.02)
            with (FOLDER / "events.log").open("a") as log:
                event = {"id": identity, "status": "die", "Actor": {"Attributes": {"exitCode": "143"}}}
                log.write(json.dumps(event) + "\n")
            with (FOLDER / "restarted.log").open("ab") as sink:
                child = subprocess.Popen(
                    container["restart"],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    start_new_session=True,
                )
            container["pid"] = child.pid
    (FOLDER / "containers.json").write_text(json.dumps(found))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def stop(identity: str, stopped: bool) -> None:
    found = containers()
    for container in found:
        if container["id"] == identity:
            container["stopped"] = stopped
    (FOLDER / "containers.json").write_text(json.dumps(found))
    if stopped:
        with (FOLDER / "events.log").open("a") as log:
            event = {"id": identity, "Actor": {"Attributes": {"exitCode": "0"}}}
            log.write(json.dumps(event) + "\n")


def publish(words: list[str]) -> None:
    """Do `compose --file ... up`: publish the ports that the last file gives each service."""
    last = max(at for at, word in enumerate(words) if word == "--file") + 1
    services = json.loads(Path(words[last]).read_text())["services"]
    found = containers()
    for container in found:
        for port in services.get(container["service"], {}).get("ports", ()):
            inside = port.rpartition(":")[2]
            container["ports"][inside] = container["listens"][inside]
    (FOLDER / "containers.json").write_text(json.dumps(found))


def run(words: list[str]) -> None:
    """Do `run`: replace this process by the container's, and describe it for `inspect`."""
    name = next(word for word in words if word.startswith("--name=")).removeprefix("--name=")
    inside = words.index("python")
    nobody: dict[str, Any] = {"service": name}
    service = next((c for c in containers() if c["service"] == words[inside - 1]), nobody)
    container = {"ports": {}, "address": "127.0.0.1", **service, **service.get("run", {})}
    container |= {"id": name, "pid": os.getpid(), "stopped": False}
    (FOLDER / f"run-{name}.json").write_text(json.dumps(container))
    os.environ.update(container.get("env", {}))
    os.chdir(os.environ["FAKE_DOCKER_ROOT"])
    os.execv(sys.executable, [sys.executable, *words[inside + 1 :]])


def follow_events() -> None:
    (FOLDER / "events.log").touch()
    with (FOLDER / "events.log").open() as log:
        while True:
            if line := log.readline():
                print(line, end="", flush=True)
            else:
                time.sleep(0.05)


def info() -> dict[str, Any]:
    """What Docker's own engine says of itself on this machine."""
    said = {"ServerVersion": "28.2.2", "NCPU": os.cpu_count(), "MemTotal": 8 * 10**9, "CpuCfsQuota": True}
    more = FOLDER / "info.json"
    return said | (json.loads(more.read_text()) if more.exists() else {})


def stats(words: list[str]) -> None:
    for container in containers():
        if container["id"] in words:
            row = {"ID": container["id"], "CPUPerc": "12.50%", "MemUsage": "10MiB / 1GiB"}
            print(json.dumps(row))


def main(words: list[str]) -> int:
    with (FOLDER / "calls.log").open("a") as log:
        log.write(json.dumps(words) + "\n")
    if (FOLDER / "fail.json").exists():
        fail = json.loads((FOLDER / "fail.json").read_text())
        if " ".join(words).startswith(fail["words"]):
            print(fail["said"], file=sys.stderr)
            return int(fail["code"])
    if words[:2] == ["compose", "ps"]:
        found = [container for container in containers() if not container.get("stopped")]
        listed = [
            {
                "ID": c["id"][:12],
                "Name": f"lab-{c['service']}-1",
                "Service": c["service"],
                "State": "running",
                "Health": c.get("health", "healthy"),
            }
            for c in found
        ]
        print(json.dumps(listed) if (FOLDER / "array").exists() else "\n".join(map(json.dumps, listed)))
    elif words[0] == "compose" and "up" in words:
        publish(words)
    elif words[0] == "run" or (words[0] == "compose" and "run" in words):
        run(words)
    elif words[0] in ("stop", "start"):
        stop(words[-1], words[0] == "stop")
    elif words[0] == "info":
        print(json.dumps(info()))
    elif words[0] == "version":
        print((FOLDER / "components").read_text() if (FOLDER / "components").exists() else "null")
    elif words[:2] == ["inspect", "--format"]:
        print("0 ")
    elif words[0] in ("update", "rm"):
        pass
    elif words[0] == "inspect":
        found = [c for identity in words[1:] for c in all_there_is() if c["id"].startswith(identity)]
        if not found:
            print(f"Error: No such object: {words[1]}", file=sys.stderr)
            return 1
        print(json.dumps([inspected(container) for container in found]))
    elif words[0] == "restart":
        restart(words[-1])
    elif words[0] == "events":
        follow_events()
    elif words[0] == "stats":
        stats(words)
    elif words[0] == "exec" and words[2] == "cat":
        [pid] = [c["pid"] for c in containers() if c["id"] == words[1]]
        print(Path(words[3].replace("/1/", f"/{pid}/")).read_text(), end="")
    elif words[0] == "exec":
        inside = words[words.index("python") + 1 :]
        os.chdir(os.environ["FAKE_DOCKER_ROOT"])
        os.execv(sys.executable, [sys.executable, *inside])
    else:
        print(f"the stand-in does not know: {words}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
