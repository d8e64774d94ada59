"""`helm uninstall` leaves nothing."""

from __future__ import annotations

from tests.compose.stack import until
from tests.kubernetes.groups import ONE, ROOM, TWO
from tests.kubernetes.kube import RELEASE, Kube


def test_uninstall_leaves_nothing(releases: Kube) -> None:
    """No object of a release is left: no pod, no volume's claim, no record, no class of priority."""
    for name in (ONE, TWO, ROOM):
        done = releases.command("helm", "uninstall", RELEASE, "--namespace", name)
        assert done.returncode == 0, done.stderr
    for name in (ONE, TWO, ROOM):
        until(lambda name=name: not releases.objects(name), f"nothing left in {name}", 90)  # type: ignore[misc]
    classes = releases("get", "priorityclasses", "--output", "name").split()
    assert not [each for each in classes if each.endswith("-probe")]
