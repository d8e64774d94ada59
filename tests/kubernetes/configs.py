"""The configuration of a Kubernetes with one node, which lives in a network namespace of its own.

The node's address is on `lo`, and so is the default route: nothing gets out. Pods are on a bridge. CoreDNS answers at
the node's address.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kubernetes.building import PAUSE_IMAGE

NODE = "10.99.0.1"
NODE_NAME = "node"
SERVICES = "10.96.0.0/16"
PODS = "10.244.0.0/24"
API = f"https://{NODE}:6443"
ADMIN, GUEST = "admin-of-the-tests", "guest-of-the-tests"
"""Tokens. Nobody but this namespace's processes can reach the API server. The guest has no rights."""
SOCKET = "/run/lab/containerd.sock"
"""Short, as paths of sockets must be; /run is the mount namespace's own."""

CONTAINERD = """
version = 2
root = "{run}/containerd"
state = "/run/lab/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{run}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/{pause}"
  # A score below our own may not be set here, and runc would fail.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{run}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""

COREDNS = """
.:53 {{
  bind {node}
  errors
  kubernetes cluster.local {{
    kubeconfig {run}/admin.conf
  }}
  cache 5
}}
"""

KUBELET: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "containerRuntimeEndpoint": f"unix://{SOCKET}",
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,  # some machines still have it
    "failSwapOn": False,
    "enforceNodeAllocatable": [],
    "clusterDNS": [NODE],
    "clusterDomain": "cluster.local",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    # A disk that is nearly full is the machine's own affair, and none of the tests.
    "evictionHard": {"imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%"},
    "imageGCHighThresholdPercent": 100,
    "imageGCLowThresholdPercent": 99,
    "oomScoreAdj": 0,
}

PROXY: dict[str, Any] = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "mode": "iptables",
    "clusterCIDR": PODS,
    "hostnameOverride": NODE_NAME,
    # Between two pods on one bridge, answers would pass the node by, and not be translated back.
    "iptables": {"masqueradeAll": True},
    # These limits belong to the machine, not to a network namespace.
    "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
}


def _bridge(run: Path) -> dict[str, Any]:
    return {
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isDefaultGateway": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(run / "addresses"),
                    "ranges": [[{"subnet": PODS}]],
                },
            }
        ],
    }


def kubeconfig(token: str, server: str = API) -> str:
    """A kubeconfig for a token. JSON is YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "user"}}],
            "current-context": "lab",
        }
    )


def write(run: Path) -> None:
    """Write all files below `run`."""
    (run / "cni").mkdir(parents=True)
    kubelet = {**KUBELET, "podLogsDir": str(run / "pod-logs"), "volumePluginDir": str(run / "volume-plugins")}
    kubelet["resolvConf"] = str(run / "resolv.conf")
    proxy = {**PROXY, "clientConnection": {"kubeconfig": str(run / "admin.conf")}}
    for name, text in {
        "containerd.toml": CONTAINERD.format(run=run, socket=SOCKET, pause=PAUSE_IMAGE),
        "Corefile": COREDNS.format(run=run, node=NODE),
        "cni/lab.conflist": json.dumps(_bridge(run)),
        "kubelet.json": json.dumps(kubelet),
        "proxy.json": json.dumps(proxy),
        "resolv.conf": "",
        "tokens.csv": f'{ADMIN},admin,1,"system:masters"\n{GUEST},guest,2\n',
        "admin.conf": kubeconfig(ADMIN),
        "guest.conf": kubeconfig(GUEST),
    }.items():
        (run / name).write_text(text)
        (run / name).chmod(0o600)
    (run / "resolv.conf").chmod(0o644)


def commands(run: Path, programs: Path) -> dict[str, list[str]]:
    """What is started, by name, in this order."""
    admin = f"--kubeconfig={run / 'admin.conf'}"
    return {
        "etcd": [
            "etcd",
            f"--data-dir={run / 'etcd'}",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--initial-advertise-peer-urls=http://127.0.0.1:2380",
            "--initial-cluster=default=http://127.0.0.1:2380",
        ],
        "containerd": ["containerd", "--config", str(run / "containerd.toml")],
        "kube-apiserver": [
            str(programs / "kube-apiserver"),
            "--etcd-servers=http://127.0.0.1:2379",
            f"--service-cluster-ip-range={SERVICES}",
            f"--advertise-address={NODE}",
            f"--cert-dir={run / 'certificates'}",
            f"--token-auth-file={run / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={run / 'service-accounts.pem'}",
            f"--service-account-signing-key-file={run / 'service-accounts.pem'}",
            "--kubelet-preferred-address-types=InternalIP",
        ],
        "kube-controller-manager": [
            str(programs / "kube-controller-manager"),
            admin,
            "--leader-elect=false",
            f"--service-account-private-key-file={run / 'service-accounts.pem'}",
            f"--flex-volume-plugin-dir={run / 'volume-plugins'}",
        ],
        "kube-scheduler": [str(programs / "kube-scheduler"), admin, "--leader-elect=false"],
        "kubelet": [
            str(programs / "kubelet"),
            f"--config={run / 'kubelet.json'}",
            admin,
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NODE}",
        ],
        "kube-proxy": [str(programs / "kube-proxy"), f"--config={run / 'proxy.json'}"],
        # Of what it can do it does one thing: to enforce NetworkPolicies.
        "kube-router": [
            str(programs / "kube-router"),
            admin,
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--run-loadbalancer=false",
            "--enable-cni=false",
            f"--service-cluster-ip-range={SERVICES}",
            f"--hostname-override={NODE_NAME}",
            "--metrics-port=0",
            "--health-port=0",
        ],
        "coredns": [str(programs / "coredns"), "-conf", str(run / "Corefile")],
    }
