#!/usr/bin/env bash
# hami-health-check.sh [-n NAMESPACE] [NAMESPACE/DEPLOYMENT …]
# Checks GPU sharing with kubectl: pods, the scheduler's health, GPU nodes and what they offer; then `vgpuscope doctor`.
# The exit code is 0 if everything is well, 1 if something is not, and 2 if kubectl cannot ask the cluster.
set -uo pipefail

namespace=hami-system
while getopts n:h option; do
  case $option in
    n) namespace=$OPTARG ;;
    *) sed -n '2,4s/^# //p' "$0"; exit 2 ;;
  esac
done
failed=0
bad() { echo "FAILED: $*"; failed=1; }

echo "=== HAMi Health Check ==="
kubectl version >/dev/null || exit 2

echo "--- Component Status ---"
kubectl get pods -n "$namespace" -o wide
[ -n "$(kubectl get pods -n "$namespace" -o name)" ] || bad "no pods in $namespace: is another one meant? (-n NAMESPACE)"
waiting=$(kubectl get pods -n "$namespace" --field-selector status.phase!=Succeeded \
  -o jsonpath='{range .items[*]}{.metadata.name}{" "}{range .status.conditions[?(@.type=="Ready")]}{.status}{end}{"\n"}{end}' |
  awk '$2 != "True" { print $1 }')
[ -z "$waiting" ] || bad "not ready in $namespace: ${waiting//$'\n'/ }"

echo "--- Scheduler Health ---"
if kubectl get deployment -n "$namespace" hami-scheduler >/dev/null 2>&1; then
  kubectl exec -n "$namespace" deployment/hami-scheduler -- wget -qO- http://localhost:8080/healthz ||
    bad "deployment/hami-scheduler does not answer on /healthz"
  echo
else
  echo "no deployment/hami-scheduler in $namespace: vgpuscope has it with extender.enabled and compatibility.handbookNames"
fi

echo "--- GPU Nodes ---"
nodes=$(for label in gpu=on nvidia.com/gpu.present=true vgpuscope.io/plugin=on accelerator=nvidia; do
  kubectl get nodes -l "$label" -o name
done | sort -u)
[ -n "$nodes" ] || bad "no node has gpu=on, nvidia.com/gpu.present=true, vgpuscope.io/plugin=on or accelerator=nvidia"
# shellcheck disable=SC2086 # one word for each node
[ -z "$nodes" ] || kubectl get $nodes -o wide

echo "--- Device Registration ---"
for node in $nodes; do
  offered=$(kubectl get "$node" -o jsonpath='{.status.allocatable.nvidia\.com/gpu}')
  registered=$(kubectl get "$node" -o jsonpath='{.metadata.annotations.hami\.io/node-nvidia-register}')
  echo "$node: nvidia.com/gpu ${offered:-none}, registered with HAMi: $([ -n "$registered" ] && echo yes || echo no)"
  [ "${offered:-0}" != 0 ] || bad "$node offers no nvidia.com/gpu"
done

echo "--- vgpuscope doctor ---"
analyzer=$(kubectl get deployments -n "$namespace" -l app.kubernetes.io/component=analyzer -o name | head -n 1)
if [ -n "$analyzer" ]; then
  kubectl exec -n "$namespace" "$analyzer" -- vgpuscope doctor --analyzer http://localhost:8080 ||
    bad "vgpuscope doctor found problems"
else
  echo "no analyzer of vgpuscope in $namespace"
fi
exit "$failed"
