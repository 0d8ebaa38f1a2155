//go:build tools

// Package helm pins what the tests of the chart run: Helm, and the custom resources that the chart can use.
package helm

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
