//go:build tools

// Package node pins what runs on the node of `make e2e`, beside the control plane of tools/controlplane.
package node

import (
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
