"""All stacks fulfil the protocol that phases, recorder and calibration rely on."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from lab.stacks.base import Stack
from lab.stacks.native import NativeStack
from lab.stacks.scene import SceneStack

ROOT = Path(__file__).resolve().parents[3]
STACKS = (NativeStack, SceneStack)
MEMBERS = [name for name in vars(Stack) if not name.startswith("_")]
METHODS = [name for name in MEMBERS if inspect.isfunction(vars(Stack)[name])]
USERS = ("phases", "recorder", "calibration")


def test_protocol_has_members() -> None:
    """The protocol has members, so the tests below are not empty."""
    assert {"up", "down", "empty", "check", "start_probe", "meter", "server", "web"} <= set(MEMBERS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.__name__)
def test_methods_take_what_the_protocol_says(stack: type, method: str) -> None:
    """Every method of the protocol is there, and has the same parameters by the same names."""
    expected = list(inspect.signature(getattr(Stack, method)).parameters)
    assert list(inspect.signature(getattr(stack, method)).parameters) == expected


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.__name__)
def test_attributes_are_set(stack: type) -> None:
    """Every attribute of the protocol belongs to the class or one that it extends, or is set by it."""
    source = "".join(inspect.getsource(each) for each in stack.__mro__ if each is not object)
    for name in set(MEMBERS) - set(METHODS):
        assert hasattr(stack, name) or re.search(rf"self\.{name} = ", source), name


@pytest.mark.parametrize("module", USERS)
def test_users_of_a_stack_know_no_particular_one(module: str) -> None:
    """The users import the protocol and the clients that a stack hands out, and no stack, process or container."""
    source = (ROOT / "lab" / "runner" / f"{module}.py").read_text()
    assert "from lab.stacks.base import" in source
    assert set(re.findall(r"lab\.stacks\.(\w+)", source)) <= {"base", "http", "server_stats"}
    assert not re.search(r"NativeStack|SceneStack|subprocess", source)


@pytest.mark.parametrize("module", USERS)
def test_users_of_a_stack_use_only_the_protocol(module: str) -> None:
    """Every attribute of a stack that its users name is a member of the protocol."""
    source = (ROOT / "lab" / "runner" / f"{module}.py").read_text()
    used = set(re.findall(r"\bstack\.([a-z]\w*)", source)) - {"base"}
    assert used
    assert used <= set(MEMBERS), used - set(MEMBERS)
