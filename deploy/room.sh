#!/bin/sh
# A room of groups on a Kubernetes cluster, and its end. room.md says how large the cluster must be.
#
#   deploy/room.sh up 40 --values my-room.yaml     options behind the number go to Helm, for every release
#   deploy/room.sh down
#
# SERVERS: the servers of each group ("dragonfly redis"). DOMAIN: the domain of the pages, such as lab.example; without
# it they are reached by port-forward. `up` can be typed again: it makes what is missing, and renews what is there.
set -eu

chart=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)/helm/redis-latency-lab
shared=latency-lab-room
label=redis-latency-lab/made-by=room-cluster

fail() { printf 'room: %s\n' "$2" >&2; exit "$1"; }
case "$*" in
down | up\ [1-9]*) ;;
*) fail 2 "type deploy/room.sh up NUMBER [HELM OPTIONS], or deploy/room.sh down." ;;
esac
for program in kubectl helm; do
    command -v $program >/dev/null || fail 3 "there is no $program on PATH."
done
ours=$(kubectl get namespaces --selector $label --output 'jsonpath={.items[*].metadata.name}') || fail 3 "the cluster does not answer."

if [ "$1" = down ]; then
    for name in $ours; do
        release=scene && [ "$name" != $shared ] || release=room
        # A release has one object outside its namespace, the PriorityClass of its probes: Helm removes it.
        helm uninstall $release --namespace "$name" --ignore-not-found
        kubectl delete namespace "$name"
    done
    exit 0
fi

groups=$2
case $groups in *[!0-9]*) fail 2 "$groups is no number of groups." ;; esac
shift 2
teams=$(seq -f team-%.0f "$groups")
servers={$(echo ${SERVERS:-dragonfly redis} | tr ' ' ,)}
missing=
for name in $shared $teams; do
    case " $ours " in *" $name "*) continue ;; esac
    ! kubectl get namespace "$name" >/dev/null 2>&1 || fail 3 "the namespace $name was there before: nothing was changed."
    missing="$missing $name"
done
for name in $missing; do
    kubectl create namespace "$name"
    kubectl label namespace "$name" $label pod-security.kubernetes.io/enforce=restricted
done

# The room's pods get what values.yaml gives them for one group, and a share for each group after the first.
more=$((groups - 1))
set_prometheus=resources.prometheus.cpu=$((200 + 25 * more)),resources.prometheus.cpuLimit=$((1000 + 50 * more))
set_prometheus=$set_prometheus,resources.prometheus.memory=$((512 + 72 * more)),resources.prometheus.disk=$((4096 + 128 * more))
set_tempo=resources.tempo.cpu=$((100 + 20 * more)),resources.tempo.cpuLimit=$((1000 + 40 * more))
set_tempo=$set_tempo,resources.tempo.memory=$((768 + 32 * more)),resources.tempo.disk=$((4096 + 64 * more))
set_grafana=resources.grafana.cpu=$((100 + 5 * more)),resources.grafana.memory=$((512 + 8 * more))
released=
for name in $teams; do released="$released,observability.releases.$name=$servers"; done
named() { [ -z "${DOMAIN:-}" ] || printf ',ingress.enabled=true,ingress.host=%s' "$1.$DOMAIN"; }
helm upgrade --install room "$chart" --namespace $shared "$@" --set-json 'servers=[]' \
    --set "$set_prometheus,$set_tempo,$set_grafana$released$(named grafana)"

# Only the control page and Grafana are reached from outside; links to other pages would lead nowhere.
links=links.prometheus=,links.tempo=,links.locust.dragonfly=,links.locust.redis=,links.locust.valkey=
[ -z "${DOMAIN:-}" ] || links=$links,links.grafana=http://grafana.$DOMAIN
for name in $teams; do
    helm upgrade --install scene "$chart" --namespace "$name" "$@" \
        --set "servers=$servers,observability.shared=true,$links$(named "$name")"
done

kubectl wait pod --all-namespaces --selector app.kubernetes.io/name=redis-latency-lab --for=condition=Ready --timeout=15m ||
    fail 3 "some pods are not ready: kubectl get pods --all-namespaces says which. Type the same line again to go on."
for name in $teams; do
    [ -z "${DOMAIN:-}" ] || { echo "$name  http://$name.$DOMAIN" && continue; }
    echo "$name  kubectl --namespace $name port-forward service/control 8080:8080"
done
[ -z "${DOMAIN:-}" ] || { echo "Grafana  http://grafana.$DOMAIN" && exit; }
echo "Grafana  kubectl --namespace $shared port-forward service/grafana 3000:3000"
