"""`make room-cluster` and `make room-cluster-down`: a room of groups on a Kubernetes cluster, and its end.

    python -m lab.stacks.room_cluster up --groups 40 --values my.yaml --host lab.example
    python -m lab.stacks.room_cluster down

`up` looks at the cluster first, and changes nothing if something is missing. Then it makes a namespace for each group,
installs the room's release and one for each group, waits until all is ready, and writes a page with an address
for each group. It can be typed again at any time: what is there is brought up to date, what is missing is made.
deploy/room.md says how large a cluster must be.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NoReturn

from lab import ROOT
from lab.errors import INTERRUPTED, USAGE, LabError, StackError
from lab.stacks import room_checks, room_kube, room_plan
from lab.stacks.asking import Finding
from lab.stacks.room_checks import RELEASE, ROOM_RELEASE, Asked
from lab.templates import templates

PAGE = ROOT / "build" / "room.html"
AT_ONCE = 4
"""Releases that are installed side by side: the API server has other things to do, too."""
INSTALL_S, WAIT_S, DELETE_S = 300.0, 900.0, 600.0
LOOK_S = 5.0
"""Seconds between two looks at the pods."""
GRAFANA = "grafana"
OURS = ("--all-namespaces", "--selector", room_kube.OF_THE_CHART)
CONTINUES = "make room-cluster again goes on, make room-cluster-down removes what is there"


def shared_address(host: str) -> str:
    """Where browsers find the room's Grafana."""
    return f"http://{GRAFANA}.{host}" if host else "http://127.0.0.1:3000"


def address(group: str, host: str) -> str:
    """Where browsers find a group's control page."""
    return f"http://{group}.{host}" if host else "http://127.0.0.1:8080"


def forward(group: str) -> str:
    """The command that brings a group's control page to 127.0.0.1."""
    return f"kubectl --namespace {group} port-forward service/control 8080:8080"


FORWARD_GRAFANA = f"kubectl --namespace {room_plan.ROOM} port-forward service/grafana 3000:3000"


# -- values -----------------------------------------------------------------------------------------------------------


def _way_in(wanted: Asked, class_name: str, page: str) -> dict[str, Any]:
    return {
        "enabled": bool(wanted.host),
        "className": class_name,
        "host": f"{page}.{wanted.host}" if wanted.host else "",
        "namespace": wanted.ingress_namespace,
    }


def group_values(wanted: Asked, class_name: str, group: str) -> dict[str, Any]:
    """The values of a group's release that are not the same for everybody."""
    # Only the control page and Grafana have names outside, or a line that forwards them: other links lead nowhere.
    nowhere = dict.fromkeys(("dragonfly", "redis", "valkey"), "")
    return {
        "observability": {"shared": True, "namespace": room_plan.ROOM},
        "ingress": _way_in(wanted, class_name, group),
        "links": {"grafana": shared_address(wanted.host), "prometheus": "", "tempo": "", "locust": nowhere},
    }


def room_values(wanted: Asked, class_name: str) -> dict[str, Any]:
    """The values of the room's own release: no servers, all groups by name, and resources for so many."""
    values = room_plan.chart_values(wanted.files)
    groups = room_plan.names(wanted.groups)
    return {
        "servers": [],
        "observability": {"shared": False, "releases": dict.fromkeys(groups, values["servers"])},
        "resources": room_plan.room_resources(values, wanted.groups),
        "ingress": _way_in(wanted, class_name, GRAFANA),
    }


# -- up ---------------------------------------------------------------------------------------------------------------


def up(wanted: Asked, page: Path = PAGE, wait_s: float = WAIT_S) -> int:
    """Bring up the room; 0 seconds of waiting: do not wait. Returns 0. Raises `LabError`, in one line."""
    room_plan.chart_values(wanted.files)  # a file that cannot be read is said first
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        class_name = room_checks.examine(wanted, _file(place, group_values(wanted, "", "team-1")), _say)
        there = {room_kube.name_of(each) for each in room_kube.listed("namespaces")}
        room_kube.create_namespaces(name for name in wanted.names if name not in there)
        files = {
            name: _file(
                place,
                room_values(wanted, class_name)
                if name == room_plan.ROOM
                else group_values(wanted, class_name, name),
                name,
            )
            for name in wanted.names
        }

        def install(name: str) -> None:
            release = ROOM_RELEASE if name == room_plan.ROOM else RELEASE
            given = [*map(str, wanted.files), str(files[name])]
            room_kube.install(release, name, str(room_plan.CHART), given, INSTALL_S)

        side_by_side([room_plan.ROOM], install, "installed")
        side_by_side(wanted.names[1:], install, "installed")
    if wait_s:
        wait(wanted, wait_s)
    write(page, wanted)
    print("\n".join(lines(wanted)))
    print(f"\nFor the wall or the projector: {page}\nmake room-cluster-down removes all of it.", flush=True)
    return 0


def _file(place: Path, values: dict[str, Any], name: str = "own") -> Path:
    """A file of values. JSON is YAML."""
    path = place / f"{name}.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def _say(finding: Finding) -> None:
    print(f"{'ok  ' if finding.ok else 'MISS'} {finding.what}: {finding.detail}", flush=True)


def side_by_side(names: Sequence[str], do: Callable[[str], None], done: str) -> None:
    """Do something for each name, a few at a time, and say each that is done. The first error ends it."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        begun = {pool.submit(do, name): name for name in names}
        for number, future in enumerate(as_completed(begun), start=1):
            future.result()
            print(f"     {done}: {begun[future]} ({number} of {len(names)})", flush=True)
    finally:  # after an error or Ctrl-C nothing new begins; what has begun ends by itself
        pool.shutdown(cancel_futures=True)


def wait(wanted: Asked, seconds: float) -> None:
    """Wait until every workload of the room has its pods, and all are ready. Raises `StackError` after so many seconds.

    Workloads are asked, and not pods: right after an upgrade the pods of before are still there, and ready.
    """
    group = {pod.name for pod in room_plan.group_pods(room_plan.chart_values(wanted.files))}
    needed = dict.fromkeys(wanted.names, len(group)) | {room_plan.ROOM: len(room_plan.PER_GROUP)}
    end, said = time.monotonic() + seconds, ""
    while True:
        done = dict.fromkeys(needed, 0)
        for each in room_kube.listed("deployments,statefulsets", *OURS):
            if each["metadata"]["namespace"] in done:
                done[each["metadata"]["namespace"]] += room_kube.is_done(each)
        lacking = [name for name, number in needed.items() if done[name] < number]
        releases = f"{len(needed) - len(lacking)} of {len(needed)} releases"
        now = f"{releases}, {sum(done.values())} of {sum(needed.values())} workloads"
        if now != said:
            print(f"     ready: {now}", flush=True)
            said = now
        if not lacking:
            return
        if time.monotonic() >= end:
            break
        time.sleep(min(LOOK_S, max(0.0, end - time.monotonic())))
    pods = [each for each in room_kube.listed("pods", *OURS) if each["metadata"]["namespace"] in lacking]
    complaints = list(filter(None, map(room_kube.complaint, pods)))
    told = f", {len(complaints)} pods complain; the first says: {complaints[0]}" if complaints else ""
    raise StackError(f"after {seconds:.0f} s {room_checks.short(lacking)} not ready{told}. {CONTINUES}.")


# -- the page ---------------------------------------------------------------------------------------------------------


def lines(wanted: Asked) -> list[str]:
    """The table of addresses for a terminal."""
    if wanted.host:
        rows = [f"{group:<9} {address(group, wanted.host)}" for group in room_plan.names(wanted.groups)]
        return ["", *rows, f"{'Grafana':<9} {shared_address(wanted.host)}"]
    rows = [f"{group:<9} {forward(group)}" for group in room_plan.names(wanted.groups)]
    opened = f"Each then opens {address('', '')}, and Grafana at {shared_address('')}."
    return ["", *rows, f"{'Grafana':<9} {FORWARD_GRAFANA}", "", opened]


def write(page: Path, wanted: Asked) -> None:
    """Write the page of addresses. Raises `StackError` when the file cannot be written."""
    groups = [
        {"name": group, "link": address(group, wanted.host), "command": "" if wanted.host else forward(group)}
        for group in room_plan.names(wanted.groups)
    ]
    text = (
        templates(Path(__file__).parent)
        .get_template("room_cluster.html.j2")
        .render(
            groups=groups,
            grafana=shared_address(wanted.host),
            forward_grafana="" if wanted.host else FORWARD_GRAFANA,
        )
    )
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StackError(
            f"{page} cannot be written: {error.strerror}. The room is up; choose another --out."
        ) from None


# -- down -------------------------------------------------------------------------------------------------------------


def down() -> int:
    """Remove every namespace that `up` made, with its release. Returns 0, also without any. Raises `StackError`."""
    for finding in (*room_checks.programs(), room_checks.cluster()):
        if not finding.ok:
            raise StackError(f"{finding.what}: {finding.detail}")
        if finding.what == "cluster":
            _say(finding)
    ours = [room_kube.name_of(each) for each in room_kube.listed("namespaces") if room_kube.is_ours(each)]
    if not ours:
        print("no room of this lab is on the cluster: nothing to remove.")
        return 0

    def uninstall(name: str) -> None:
        room_kube.uninstall(ROOM_RELEASE if name == room_plan.ROOM else RELEASE, name)

    # A release also has an object that belongs to no namespace (the class of its probe's priority): Helm removes that.
    side_by_side(ours, uninstall, "uninstalled")
    room_kube.delete_namespaces(ours, DELETE_S)
    print(f"removed {len(ours)} namespaces and what was in them: {', '.join(ours)}")
    return 0


# -- the command line -------------------------------------------------------------------------------------------------


class _OneLine(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """End the process with one line."""
        print(f"lab: {message}", file=sys.stderr)
        sys.exit(USAGE)


def read_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the arguments. Bad arguments end the process with one line and exit code 2."""
    parser = _OneLine(prog="lab.stacks.room_cluster", description="A room of groups on a Kubernetes cluster.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up_ = verbs.add_parser("up", help="bring up the room, or go on where it was interrupted")
    up_.add_argument("--groups", required=True, help=f"number of groups, 1 to {room_plan.GROUPS_MOST}")
    up_.add_argument(
        "--values", type=Path, action="append", default=[], help="file of values for every release"
    )
    up_.add_argument("--host", default="", help="domain of the pages: team-7 is then at team-7.HOST (none)")
    up_.add_argument("--ingress-class", default="", help="class of ingress (the cluster's default)")
    up_.add_argument(
        "--ingress-namespace", default="ingress-nginx", help="namespace of the ingress controller"
    )
    up_.add_argument("--out", type=Path, default=PAGE, help="page of addresses (build/room.html)")
    up_.add_argument(
        "--wait", type=float, default=WAIT_S, help=f"seconds to wait for the pods ({WAIT_S:.0f})"
    )
    verbs.add_parser("down", help="remove what up has made")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Do what is asked. Returns the exit code; after an error one line on stderr says what is wrong."""
    given = read_arguments(arguments)
    try:
        if given.verb == "down":
            return down()
        wanted = room_checks.asked(
            given.groups, given.values, given.host, given.ingress_class, given.ingress_namespace
        )
        return up(wanted, given.out, max(0.0, given.wait))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"lab: interrupted; {CONTINUES}.", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
