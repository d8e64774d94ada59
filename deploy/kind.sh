#!/usr/bin/env bash
# The chart on a real Kubernetes: installed, waited for, one run of the lab, uninstalled, nothing left.
# Needs Docker, an image registry within reach, kind, kubectl and Helm. kind makes a cluster of one node in a container;
# it is deleted at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
cluster=redis-latency-lab-test namespace=team-1 image=redis-latency-lab:kind tools=redis-latency-lab-tools:kind

for need in docker kind kubectl helm; do
    command -v "$need" >/dev/null || { echo "deploy/kind.sh needs $need: install it and try again" >&2; exit 3; }
done
KUBECONFIG=$(mktemp) # yours is not touched
export KUBECONFIG
trap 'kind delete cluster --quiet --name "$cluster"; rm -f "$KUBECONFIG"' EXIT

kind create cluster --name "$cluster" --wait 180s
docker build --quiet -f app/Dockerfile -t "$image" .
docker build --quiet -f app/Dockerfile --build-arg REQUIREMENTS=requirements/lab.lock --target tools -t "$tools" .
kind load docker-image "$image" "$tools" --name "$cluster"

kubectl create namespace "$namespace"
kubectl label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted
helm install scene deploy/helm/redis-latency-lab --namespace "$namespace" \
    --set images.lab="$image" --set images.tools="$tools" --set lab.enabled=true --set story.enabled=false
kubectl --namespace "$namespace" wait pod --all --for=condition=Ready --timeout=10m

# 4: the run is not valid, because one small node is shared with the cluster's own programs. The claims are judged then, too.
kubectl --namespace "$namespace" exec deployment/lab -- python -m lab run key-growth --pace quick --url redis://redis:6379 --yes || [ $? -eq 4 ]

helm uninstall scene --namespace "$namespace" --wait --timeout 3m
left=$(kubectl --namespace "$namespace" get all,networkpolicy,configmap,secret,pvc,resourcequota,limitrange --output name | grep -v '^configmap/kube-root-ca' || true)
[ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }
echo "The chart was installed, run against and removed."
