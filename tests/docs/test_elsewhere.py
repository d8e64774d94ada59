"""Files that start the lab on other machines: the workflow, the devcontainer, the images that Renovate updates."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from lab import ROOT, cli
from lab.scene.preflight import read_env_file, wanted_ports

WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def devcontainer() -> dict[str, Any]:
    """devcontainer.json, parsed without its comments."""
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


def test_the_workflow_runs_the_readmes_commands_and_nothing_else() -> None:
    """Each command of the workflow is a verb of the Makefile, bin/lab's doctor, or an installation of what tests need.

    The README's own commands are among them.
    """
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    typed = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in (command for command in typed if not command.startswith(("sudo apt-get ", "echo "))):
        program, verb, *_ = command.split()
        assert (program == "make" and verb in verbs) or command in (
            "bin/lab doctor",
            "bin/lab doctor --scene",
        ), command
    assert {"make check", "make test", "make demo", "make test-compose", "make up", "make down"} <= set(typed)


def test_the_workflow_names_other_peoples_actions_by_commit() -> None:
    """A tag may be pushed again; a commit always names the same action."""
    used = re.findall(r"uses: (\S+)", WORKFLOW.read_text())
    assert used
    assert not [name for name in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name)]


def test_the_workflow_has_machines_and_pythons_that_are_served() -> None:
    """The workflow has Linux on both architectures, macOS, and the oldest and the newest Python."""
    matrix = yaml.safe_load(WORKFLOW.read_text())["jobs"]["native"]["strategy"]["matrix"]
    assert {"ubuntu-24.04", "ubuntu-24.04-arm", "macos-15"} <= set(matrix["os"])
    pythons = {*matrix["python"], *(row["python"] for row in matrix["include"])}
    assert pythons == {"3.11", "3.13", "3.14"}


def test_the_workflow_keeps_the_page_that_doctor_writes() -> None:
    """The job of the scene uploads the folder that `bin/lab doctor --scene` writes by default."""
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["stack"]["steps"]
    [kept] = [step["with"] for step in steps if "upload-artifact" in step.get("uses", "")]
    assert Path(kept["path"]) == inspect.signature(cli.doctor).parameters["out"].default
    assert "if-no-files-found" not in kept, "GitHub warns where there is nothing to upload"


def test_the_devcontainer_shows_the_ports_of_the_scene() -> None:
    """The devcontainer forwards the ports that .env names for services that start by default, each with a label."""
    found = devcontainer()
    ports = sorted(int(port) for port in wanted_ports(read_env_file(ROOT / ".env") or {}).values())
    assert sorted(found["forwardPorts"]) == ports == sorted(map(int, found["portsAttributes"]))
    assert all(port["label"] for port in found["portsAttributes"].values())
    assert found["onCreateCommand"] == "bin/lab --bootstrap"
    assert found["hostRequirements"]["cpus"] == 4


def test_every_image_is_looked_after() -> None:
    """Renovate's expression finds each pinned image in .env, with a digest too; the image built here is left out."""
    [manager] = json.loads((ROOT / ".github" / "renovate.json").read_text())["customManagers"]
    expression = manager["matchStrings"][0].replace("(?<", "(?P<")
    text = (ROOT / ".env").read_text()
    images = [
        value for name, value in (read_env_file(ROOT / ".env") or {}).items() if name.endswith("_IMAGE")
    ]
    found = [f"{match['depName']}:{match['currentValue']}" for match in re.finditer(expression, text)]
    assert found == [image.partition("@")[0] for image in images]
    rules = json.loads((ROOT / ".github" / "renovate.json").read_text())["packageRules"]
    assert {"redis-latency-lab"} == {name for rule in rules for name in rule.get("matchPackageNames", ())}
    pinned = re.search(expression, "REDIS_IMAGE=docker.io/library/redis:8.10.2@sha256:" + "a" * 64)
    assert pinned
    assert pinned["currentDigest"] == "sha256:" + "a" * 64


def test_files_keep_their_line_endings(tmp_path: Path) -> None:
    """A clone on Windows keeps LF: with CRLF bin/lab would not start."""
    said = subprocess.run(
        ["git", "check-attr", "text", "eol", "--", "bin/lab", "compose.yaml", "workshop/cold-case/traces.gz"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if said.returncode:  # a tree that is no clone
        return
    assert "bin/lab: eol: lf" in said.stdout
    assert "compose.yaml: eol: lf" in said.stdout
    assert "traces.gz: text: unset" in said.stdout
