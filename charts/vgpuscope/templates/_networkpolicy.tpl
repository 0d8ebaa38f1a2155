{{/* "yes" for a component that callers outside the cluster reach: a NetworkPolicy cannot name them. */}}
{{- define "vgpuscope.reachedFromOutside" -}}
{{- $values := .root.Values }}
{{- $service := ternary $values.monitor.service (index $values .component).service (eq .component "agent") | default dict }}
{{- $type := $service.type | default "ClusterIP" }}
{{- if or (has .component $values.networkPolicy.open) (ne $type "ClusterIP") }}yes
{{- else if eq .component "analyzer" }}{{ if or $values.analyzer.ingress.enabled $values.analyzer.httpRoute.enabled }}yes{{ end }}
{{- else if eq .component "extender" }}{{ if $values.extender.webhook.enabled }}yes{{ end }}{{/* the API server has no pod */}}
{{- end -}}
{{- end -}}

{{/* The NetworkPolicy of a component, and whom it lets in. */}}
{{- define "vgpuscope.networkPolicy" -}}
{{- if and .root.Values.networkPolicy.enabled (index .root.Values .component).enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "vgpuscope.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "vgpuscope.selector" . | nindent 6 }}
  policyTypes: [Ingress{{ if .root.Values.networkPolicy.egress.enabled }}, Egress{{ end }}]
  ingress:
    - ports:
        - {port: {{ .port }}, protocol: TCP}
      {{- with ternary list .root.Values.networkPolicy.from (eq "yes" (include "vgpuscope.reachedFromOutside" .)) }}
      from:
        - podSelector:
            matchLabels:
              app.kubernetes.io/name: {{ include "vgpuscope.name" $.root }}
              app.kubernetes.io/instance: {{ $.root.Release.Name }}
        {{- toYaml . | nindent 8 }}
      {{- end }}
  {{- with .root.Values.networkPolicy.egress }}
  {{- if .enabled }}
  egress:
    - ports:
        - {port: 53, protocol: UDP}
        - {port: 53, protocol: TCP}
    # the API server has no address that a policy could name in every cluster
    - ports:
        {{- range .apiServerPorts }}
        - {port: {{ . }}, protocol: TCP}
        {{- end }}
    - to:
        - podSelector:
            matchLabels:
              app.kubernetes.io/name: {{ include "vgpuscope.name" $.root }}
              app.kubernetes.io/instance: {{ $.root.Release.Name }}
    {{- with .to }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end -}}
