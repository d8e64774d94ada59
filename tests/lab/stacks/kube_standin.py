"""A stand-in for `kubectl` and `helm`: a cluster that is a file. Its first word says which of both it is.

FAKE_KUBE names the folder:
    cluster.json   {namespaces, nodes, pods, storageclasses, ingressclasses, priorityclasses: lists of objects as
                    kubectl prints them, releases: {NAMESPACE: STATUS}, pods_of: {RELEASE: number},
                    not_ready: [NAMESPACE, ...], version}
    denied         what `auth can-i` denies, such as "create namespaces", a line each (the shell before this answers)
    calls.log      written: one JSON list of words a call
    given/         written: each values file that a release was installed with, as NAMESPACE-NUMBER
    fail.json      {"words": "helm upgrade", "said": "text on stderr"}: calls that begin so fail
    slow           if it exists, installing a release takes as many seconds as it says
"""

import fcntl
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["FAKE_KUBE"])


def load() -> dict[str, Any]:
    return dict(json.loads((FOLDER / "cluster.json").read_text()))


def save(cluster: dict[str, Any]) -> None:
    (FOLDER / "cluster.json").write_text(json.dumps(cluster))


def refuse(said: str) -> int:
    print(said, file=sys.stderr)
    return 1


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def workload(pod: dict[str, Any]) -> dict[str, Any]:
    ready = int(pod["status"]["conditions"][0]["status"] == "True")
    status = {"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": ready}
    return {"metadata": {**pod["metadata"], "generation": 1}, "spec": {"replicas": 1}, "status": status}


def kubectl(words: list[str], cluster: dict[str, Any]) -> int:
    if words[:2] == ["config", "current-context"]:
        print("classroom")
    elif words[0] == "version":
        print(
            json.dumps({"clientVersion": {}, "serverVersion": {"gitVersion": cluster["version"]}}, indent=2)
        )
    elif words[:2] == ["get", "deployments,statefulsets"]:
        print(json.dumps({"items": [workload(pod) for pod in cluster["pods"]]}))
    elif words[0] == "get":
        print(json.dumps({"items": cluster[words[1]]}))
    elif words[0] == "create":
        for made in json.load(sys.stdin)["items"]:
            cluster["namespaces"].append({**made, "status": {"phase": "Active"}})
        save(cluster)
    elif words[:2] == ["delete", "namespace"]:
        gone = {word for word in words[2:] if not word.startswith("-")}
        cluster["namespaces"] = [n for n in cluster["namespaces"] if n["metadata"]["name"] not in gone]
        cluster["pods"] = [p for p in cluster["pods"] if p["metadata"]["namespace"] not in gone]
        save(cluster)
    else:
        return refuse(f"error: the stand-in does not know: {words}")
    return 0


def helm(words: list[str], cluster: dict[str, Any]) -> int:
    namespace = option(words, "--namespace")
    if words[0] == "template":
        text = "".join(Path(words[at + 1]).read_text() for at, word in enumerate(words) if word == "--values")
        return refuse("Error: values don't meet the schema\n- unknown: no") if "unknown" in text else 0
    if words[0] == "status":
        if namespace not in cluster["releases"]:
            return refuse("Error: release: not found")
        print(json.dumps({"info": {"status": cluster["releases"][namespace]}}))
    elif words[0] == "uninstall":
        cluster["releases"].pop(namespace, None)
        cluster["pods"] = [p for p in cluster["pods"] if p["metadata"]["namespace"] != namespace]
        save(cluster)
    elif words[0] == "upgrade":
        if cluster["releases"].get(namespace, "").startswith("pending"):
            return refuse("Error: another operation (install/upgrade/rollback) is in progress")
        install(words, namespace, cluster)
    else:
        return refuse(f"Error: the stand-in does not know: {words}")
    return 0


def install(words: list[str], namespace: str, cluster: dict[str, Any]) -> None:
    files = [words[at + 1] for at, word in enumerate(words) if word == "--values"]
    for number, file in enumerate(files):
        shutil.copy(file, FOLDER / "given" / f"{namespace}-{number}")
    ready = "False" if namespace in cluster["not_ready"] else "True"
    place = (
        []
        if ready == "True"
        else [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes available"}]
    )
    if namespace not in cluster["releases"]:
        cluster["pods"] += [
            {
                "metadata": {"namespace": namespace, "name": f"pod-{number}"},
                "spec": {"containers": []},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}, *place]},
            }
            for number in range(cluster["pods_of"][words[2]])
        ]
    cluster["releases"][namespace] = "deployed"
    save(cluster)


def main(program: str, words: list[str]) -> int:
    slow = FOLDER / "slow"
    if program == "helm" and words[0] == "upgrade" and slow.exists():
        (FOLDER / "installing").touch()
        time.sleep(float(slow.read_text()))
    # Several releases are installed at once: one call after the other has the file.
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with (FOLDER / "calls.log").open("a") as log:
            log.write(json.dumps([program, *words]) + "\n")
        if (FOLDER / "fail.json").exists():
            fail = json.loads((FOLDER / "fail.json").read_text())
            if " ".join([program, *words]).startswith(fail["words"]):
                return refuse(fail["said"])
        return {"kubectl": kubectl, "helm": helm}[program](words, load())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
