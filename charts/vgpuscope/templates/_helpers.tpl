{{/* Names ------------------------------------------------------------------------------------------------------- */}}

{{- define "vgpuscope.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* 40 characters leave room for the suffixes of objects and for what controllers append. */}}
{{- define "vgpuscope.fullname" -}}
{{- $name := include "vgpuscope.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Names of Services. Not <fullname>-agent and so on: Kubernetes would make variables that look like settings. */}}
{{- define "vgpuscope.service.agent" -}}
{{- if .Values.compatibility.handbookNames }}hami-monitor{{ else }}{{ include "vgpuscope.fullname" . }}-nodes{{ end -}}
{{- end -}}
{{- define "vgpuscope.service.cluster" -}}
{{ include "vgpuscope.fullname" . }}-metrics
{{- end -}}
{{- define "vgpuscope.service.analyzer" -}}
{{- if .Values.compatibility.handbookNames }}hami-webui{{ else }}{{ include "vgpuscope.fullname" . }}-api{{ end -}}
{{- end -}}
{{- define "vgpuscope.service.extender" -}}
{{- if .Values.compatibility.handbookNames }}hami-scheduler{{ else }}{{ include "vgpuscope.fullname" . }}-decisions{{ end -}}
{{- end -}}
{{- define "vgpuscope.service.plugin" -}}
{{ include "vgpuscope.fullname" . }}-devices
{{- end -}}

{{/* The name of a Deployment or DaemonSet. The handbook's names are for what takes the place of HAMi's programs. */}}
{{- define "vgpuscope.handbookWorkload" -}}
{{- if .root.Values.compatibility.handbookNames }}{{ get (dict "extender" "hami-scheduler" "plugin" "hami-device-plugin") .component }}{{ end -}}
{{- end -}}
{{- define "vgpuscope.workload" -}}
{{ include "vgpuscope.handbookWorkload" . | default (printf "%s-%s" (include "vgpuscope.fullname" .root) .component) }}
{{- end -}}

{{/* All components, each with the name of its port. Returns YAML. */}}
{{- define "vgpuscope.components" -}}
{agent: metrics, cluster: metrics, analyzer: http, extender: http, plugin: metrics}
{{- end -}}

{{/* How a component is reached: https and "yes", or http and nothing. */}}
{{- define "vgpuscope.tls" -}}
{{- if or (index .root.Values .component).web.tls (and (eq .component "extender") .root.Values.extender.webhook.enabled) }}yes{{ end -}}
{{- end -}}
{{- define "vgpuscope.scheme" -}}
{{- if include "vgpuscope.tls" . }}https{{ else }}http{{ end -}}
{{- end -}}

{{/* The certificate of the webhook: the chart's own web.yaml uses it, unless extender.web.secret has a web.yaml. */}}
{{- define "vgpuscope.extender.ownCertificate" -}}
{{- with .Values.extender }}{{ if and .webhook.enabled (not .web.secret) }}yes{{ end }}{{ end -}}
{{- end -}}
{{- define "vgpuscope.extender.certificate" -}}
{{ .Values.extender.webhook.secret | default (printf "%s-extender-tls" (include "vgpuscope.fullname" .)) }}
{{- end -}}

{{/* Where the analyzer finds the authority of that certificate, which no system trusts: a file, or nothing. */}}
{{- define "vgpuscope.extender.authority" -}}
{{- with .Values.extender -}}
{{- if and .enabled .webhook.enabled -}}
{{- if .webhook.certManager.enabled }}/etc/vgpuscope-extender/ca.crt{{ else if .webhook.caBundle }}/etc/vgpuscope/extender-ca.crt{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The label `job` of scraped series: the same for every release name, so that rules and dashboards can use it. */}}
{{- define "vgpuscope.job" -}}
{{- $handbook := dict "agent" "hami-vgpu-monitor" "cluster" "hami-scheduler" -}}
{{- $own := printf "vgpuscope-%s" .component -}}
{{- if .root.Values.compatibility.handbookNames }}{{ get $handbook .component | default $own }}{{ else }}{{ $own }}{{ end -}}
{{- end -}}

{{/* Labels; take (dict "root" $ "component" "agent") ---------------------------------------------------------------- */}}

{{- define "vgpuscope.selector" -}}
app.kubernetes.io/name: {{ include "vgpuscope.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "vgpuscope.labels" -}}
{{ include "vgpuscope.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "vgpuscope.metadata" -}}
name: {{ include "vgpuscope.fullname" .root }}-{{ .component }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "vgpuscope.labels" . | nindent 2 }}
{{- end -}}

{{- define "vgpuscope.workloadMetadata" -}}
name: {{ include "vgpuscope.workload" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "vgpuscope.labels" . | nindent 2 }}
  {{- with include "vgpuscope.handbookWorkload" . }}
  app: {{ . }}
  {{- end }}
{{- end -}}

{{/* Metadata of objects without a namespace: releases in two namespaces must not share a ClusterRole. */}}
{{- define "vgpuscope.clusterWideName" -}}
{{ include "vgpuscope.fullname" .root }}-{{ .component }}{{ if ne .root.Release.Namespace (include "vgpuscope.fullname" .root) }}-{{ .root.Release.Namespace }}{{ end }}
{{- end -}}

{{/* Pods ------------------------------------------------------------------------------------------------------------- */}}

{{- define "vgpuscope.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "vgpuscope.podMetadata" -}}
{{- $own := index .root.Values .component -}}
labels:
  {{- include "vgpuscope.labels" . | nindent 2 }}
  {{- if .root.Values.compatibility.handbookPodLabels }}
  {{- with get (dict "agent" "hami-device-plugin" "cluster" "hami-scheduler") .component }}
  app: {{ . }}
  {{- end }}
  {{- end }}
  {{- with $own.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  kubectl.kubernetes.io/default-container: {{ include "vgpuscope.containerName" . }} # for kubectl logs and exec
  checksum/config: {{ printf "%s %v" (include (printf "vgpuscope.config.%s" .component) .root) (get $own "gpuAllocation") | sha256sum | trunc 16 }} # restarts the pod when its settings change
  {{- if eq (include "vgpuscope.annotated" .root) "yes" }}
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ $own.port | quote }}
  prometheus.io/path: {{ .root.Values.monitor.serviceMonitor.path }}
  {{- if include "vgpuscope.tls" . }}
  prometheus.io/scheme: https
  {{- end }}
  {{- end }}
  {{- with $own.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* What all pods have in common: placement, pull secrets, no variables for each Service of the namespace. */}}
{{- define "vgpuscope.podSpec" -}}
{{- $own := index .root.Values .component -}}
serviceAccountName: {{ include "vgpuscope.fullname" .root }}-{{ .component }}
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with mergeOverwrite (include "vgpuscope.anyNodeLabel" $own.nodeLabels | fromYaml) (deepCopy $own.affinity) }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Nodes that have at least one of the labels; a nodeSelector would ask for all of them. Returns YAML. */}}
{{- define "vgpuscope.anyNodeLabel" -}}
{{- with . -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      {{- range $key, $value := . }}
      - matchExpressions: [{key: {{ $key }}, operator: In, values: [{{ $value | quote }}]}]
      {{- end }}
{{- end -}}
{{- end -}}

{{- define "vgpuscope.containerName" -}}
{{ eq (include "vgpuscope.handbookWorkload" .) "hami-device-plugin" | ternary "nvidia" .component }}
{{- end -}}

{{- define "vgpuscope.container" -}}
{{- $own := index .root.Values .component -}}
name: {{ include "vgpuscope.containerName" . }}
image: {{ include "vgpuscope.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command: [vgpuscope]
args: [{{ .component }}, --config, /etc/vgpuscope/config.yaml]
ports:
  - name: {{ .port }}
    containerPort: {{ $own.port }}
{{- $scheme := include "vgpuscope.scheme" . | upper }}
startupProbe:
  httpGet: {path: /healthz, port: {{ .port }}, scheme: {{ $scheme }}}
  {{- include "vgpuscope.startupTime" . | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: {{ .port }}, scheme: {{ $scheme }}}
  timeoutSeconds: 5
readinessProbe:
  {{- /* a replica of the extender that stands by is ready to take over, and not to decide: the leader has a label */}}
  httpGet: {path: {{ eq .component "extender" | ternary "/healthz" "/readyz" }}, port: {{ .port }}, scheme: {{ $scheme }}}
  timeoutSeconds: 5
resources:
  {{- toYaml $own.resources | nindent 2 }}
{{- end -}}

{{/* Five minutes to start: on a busy node, liveness alone ended containers before they had started. */}}
{{- define "vgpuscope.startupTime" -}}
periodSeconds: 2
failureThreshold: 150
timeoutSeconds: 5
{{- end -}}

{{/* Mounts and volumes that every pod can have: its settings, and its web configuration. */}}
{{- define "vgpuscope.mounts" -}}
- {name: config, mountPath: /etc/vgpuscope, readOnly: true}
{{- if (index .root.Values .component).web.secret }}
- {name: web, mountPath: /etc/vgpuscope-web, readOnly: true}
{{- end }}
{{- if include "vgpuscope.seals" . }}
- {name: seals, mountPath: /etc/vgpuscope-seals, readOnly: true}
{{- end }}
{{- end -}}
{{- define "vgpuscope.volumes" -}}
- name: config
  configMap: {name: {{ include "vgpuscope.fullname" .root }}-{{ .component }}}
{{- with (index .root.Values .component).web.secret }}
- name: web
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with include "vgpuscope.seals" . }}
- name: seals
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{/* The Secret of the keys that seal assignments; nothing if a component does not need them.
     auto: if helm talks to the cluster, so that it finds the keys of the last time. New ones would break running pods. */}}
{{- define "vgpuscope.sealSecret" -}}
{{- $seal := .Values.extender.seal -}}
{{- $elsewhere := and (eq (toString $seal.enabled) "true") $seal.secret -}}
{{- if and (or .Values.extender.enabled $elsewhere) (ne (toString $seal.enabled) "false") -}}
{{- if $seal.secret }}{{ $seal.secret }}
{{- else if or (eq (toString $seal.enabled) "true") (lookup "v1" "Namespace" "" "kube-system") }}{{ include "vgpuscope.fullname" . }}-seal-keys
{{- end -}}
{{- end -}}
{{- end -}}
{{- define "vgpuscope.seals" -}}
{{- if has .component (list "extender" "plugin" "cluster" "agent") }}{{ include "vgpuscope.sealSecret" .root }}{{ end -}}
{{- end -}}

{{/* Settings: what the values say, and what the chart decides. Returns YAML ------------------------------------------ */}}

{{- define "vgpuscope.config.common" -}}
{{- $own := index .root.Values .component -}}
listen: {{ printf "%s:%d" .root.Values.listenAddress (int $own.port) | quote }}
{{- if $own.web.secret }}
web_config_file: /etc/vgpuscope-web/web.yaml
{{- end }}
{{- if include "vgpuscope.seals" . }}
seal_keys: /etc/vgpuscope-seals/keys
{{- end }}
{{- end -}}

{{- define "vgpuscope.config.sections" -}}
{{- $section := mergeOverwrite (deepCopy (get .root.Values.config .component | default dict)) (include "vgpuscope.config.common" . | fromYaml) (.own | fromYaml) -}}
{{- $all := dict .component $section -}}
{{- range $name, $body := .root.Values.config -}}
{{- if and $body (has $name $.sections) }}{{ $_ := set $all $name $body }}{{ end -}}
{{- end -}}
{{ toYaml $all }}
{{- end -}}

{{- define "vgpuscope.config.agent" -}}
{{- $own := include "vgpuscope.config.agent.own" . -}}
{{ include "vgpuscope.config.sections" (dict "root" . "component" "agent" "own" $own "sections" (list "log" "logging")) }}
{{- end -}}
{{- define "vgpuscope.config.cluster" -}}
{{ include "vgpuscope.config.sections" (dict "root" . "component" "cluster" "own" "{}" "sections" (list "log" "logging")) }}
{{- end -}}
{{- define "vgpuscope.config.analyzer" -}}
{{- $own := include "vgpuscope.config.analyzer.own" . -}}
{{- $sections := without (keys .Values.config) "agent" "cluster" "analyzer" "extender" "plugin" -}}
{{ include "vgpuscope.config.sections" (dict "root" . "component" "analyzer" "own" $own "sections" $sections) }}
{{- end -}}
{{- define "vgpuscope.config.extender" -}}
{{- $own := include "vgpuscope.config.extender.own" . -}}
{{ include "vgpuscope.config.sections" (dict "root" . "component" "extender" "own" $own "sections" (list "log" "logging")) }}
{{- end -}}
{{- define "vgpuscope.config.plugin" -}}
{{- $own := include "vgpuscope.config.plugin.own" . -}}
{{ include "vgpuscope.config.sections" (dict "root" . "component" "plugin" "own" $own "sections" (list "log" "logging")) }}
{{- end -}}

{{- define "vgpuscope.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "vgpuscope.metadata" . | nindent 2 }}
data:
  config.yaml: |
    {{- include (printf "vgpuscope.config.%s" .component) .root | nindent 4 }}
{{- end -}}

{{- define "vgpuscope.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "vgpuscope.metadata" . | nindent 2 }}
automountServiceAccountToken: false # the pods that talk to the API server ask for their token
{{- end -}}

{{/* What the cluster can do; return "yes" or nothing ------------------------------------------------------------------ */}}

{{- define "vgpuscope.serves" -}}
{{- if or .root.Values.assumeCRDs (.root.Capabilities.APIVersions.Has .api) }}yes{{ end -}}
{{- end -}}

{{- define "vgpuscope.podMonitors" -}}
{{- if and .Values.monitor.enabled .Values.monitor.podMonitor.enabled }}{{ include "vgpuscope.serves" (dict "root" . "api" "monitoring.coreos.com/v1/PodMonitor") }}{{ end -}}
{{- end -}}

{{- define "vgpuscope.serviceMonitors" -}}
{{- with .Values.monitor }}{{ if and .enabled .serviceMonitor.enabled (not .podMonitor.enabled) }}{{ include "vgpuscope.serves" (dict "root" $ "api" "monitoring.coreos.com/v1/ServiceMonitor") }}{{ end }}{{ end -}}
{{- end -}}

{{- define "vgpuscope.annotated" -}}
{{- $how := .Values.monitor.annotations -}}
{{- $operator := or (include "vgpuscope.podMonitors" .) (include "vgpuscope.serviceMonitors" .) -}}
{{- if or (eq $how "always") (and (eq $how "auto") .Values.monitor.enabled (not $operator)) }}yes{{ end -}}
{{- end -}}

{{/* Whether the analyzer has no other source than the agents, and so has to find them. */}}
{{- define "vgpuscope.discovers" -}}
{{- $prometheus := (.Values.config.prometheus | default dict).url -}}
{{- $targets := (.Values.config.analyzer | default dict).targets -}}
{{- if and .Values.analyzer.enabled (not $prometheus) (not $targets) }}yes{{ end -}}
{{- end -}}

{{/* Whether the analyzer reads pods and their owners; and whether it changes them, which a dry run does not. */}}
{{- define "vgpuscope.scales" -}}
{{- if eq ((.Values.config.reclaim | default dict).action | default "") "scale" }}yes{{ end -}}
{{- end -}}
{{- define "vgpuscope.reads" -}}
{{- if or (include "vgpuscope.scales" .) (.Values.config.kube | default dict).enabled }}yes{{ end -}}
{{- end -}}
{{- define "vgpuscope.acts" -}}
{{- $control := .Values.config.control | default dict -}}
{{- $live := and $control.enabled (hasKey $control "dry_run") (eq (toString $control.dry_run) "false") -}}
{{- if and (include "vgpuscope.scales" .) $live }}yes{{ end -}}
{{- end -}}

{{/* Values that exclude each other --------------------------------------------------------------------------------- */}}

{{- define "vgpuscope.check" -}}
{{- $history := (.Values.config.analyzer | default dict).history | default "" | toString -}}
{{- $shared := or (hasPrefix "postgresql://" $history) (hasKey .Values.analyzer.secretEnv "VGPUSCOPE_ANALYZER_HISTORY") -}}
{{- if and (gt (int .Values.analyzer.replicas) 1) (not $shared) -}}
{{- fail "analyzer.replicas: more than 1 replica needs a shared history. Set config.analyzer.history to a postgresql:// URL." -}}
{{- end -}}
{{- if regexMatch "^postgresql://[^/@]*:[^/@]*@" $history -}}
{{- fail "config.analyzer.history: the URL has a password, and a ConfigMap is no place for it. Put the URL into a Secret and name it in analyzer.secretEnv.VGPUSCOPE_ANALYZER_HISTORY." -}}
{{- end -}}
{{- if and (include "vgpuscope.discovers" .) (not (and .Values.agent.enabled .Values.monitor.enabled)) -}}
{{- fail "The analyzer has no source: without agent.enabled and monitor.enabled, set config.prometheus.url or config.analyzer.targets." -}}
{{- end -}}
{{- if gt (len (compact (list (.Values.agent.gpuAllocation.ratio | default "" | toString) .Values.agent.gpuAllocation.configMap .Values.agent.gpuAllocation.hostPath))) 1 -}}
{{- fail "agent.gpuAllocation: set only one of ratio, configMap and hostPath." -}}
{{- end -}}
{{- if and (eq .Values.agent.hami.mount "parent") (eq (dir .Values.agent.hami.path) "/") -}}
{{- fail (printf "agent.hami.path: the parent of %s is the whole root directory of the node. Set agent.hami.mount to directory." .Values.agent.hami.path) -}}
{{- end -}}
{{- if and .Values.analyzer.ingress.enabled (not .Values.analyzer.ingress.hosts) -}}
{{- fail "analyzer.ingress: at least one host is needed in analyzer.ingress.hosts." -}}
{{- end -}}
{{- if and .Values.analyzer.httpRoute.enabled (not .Values.analyzer.httpRoute.parentRefs) -}}
{{- fail "analyzer.httpRoute: at least one gateway is needed in analyzer.httpRoute.parentRefs." -}}
{{- end -}}
{{- include "vgpuscope.check.extender" . -}}
{{- include "vgpuscope.check.releases" . -}}
{{- end -}}

{{- define "vgpuscope.check.extender" -}}
{{- if .Values.extender.enabled -}}
{{- $extender := .Values.extender -}}
{{- $state := (.Values.config.extender | default dict).state | default "" | toString -}}
{{- if eq $extender.schedulerName "default-scheduler" -}}
{{- fail "extender.schedulerName: default-scheduler is the cluster's own scheduler. Two schedulers of one name bind the same pods. Choose vgpuscope-scheduler, or hami-scheduler after HAMi's scheduler was stopped." -}}
{{- end -}}
{{- if and (eq $extender.schedulerName "hami-scheduler") (include "vgpuscope.hamiScheduler" .) -}}
{{- fail (printf "extender.schedulerName: HAMi's own scheduler runs as %s. Two schedulers of one name allocate the same GPU twice. Scale it to 0 first (docs/migration.md), or choose another name." (include "vgpuscope.hamiScheduler" .)) -}}
{{- end -}}
{{- if eq (toString (.Values.config.cluster | default dict).scheduler_metrics) "on" -}}
{{- fail "config.cluster.scheduler_metrics: on counts every binding twice beside the extender, which has the same metrics. Use auto or off." -}}
{{- end -}}
{{- if and $extender.persistence.enabled (gt (int $extender.replicas) 1) -}}
{{- fail "extender.persistence: the file of decisions has one writer. Set extender.replicas to 1, or keep the decisions in PostgreSQL (config.extender.state)." -}}
{{- end -}}
{{- if and $extender.persistence.enabled $state -}}
{{- fail "extender.persistence: config.extender.state says where the decisions are kept, so the volume would stay empty. Set only one of them." -}}
{{- end -}}
{{- if regexMatch "^postgresql://[^/@]*:[^/@]*@" $state -}}
{{- fail "config.extender.state: the URL has a password, and a ConfigMap is no place for it. Put the URL into a Secret and name it in extender.secretEnv.VGPUSCOPE_EXTENDER_STATE." -}}
{{- end -}}
{{- include "vgpuscope.check.webhook" . -}}
{{- end -}}
{{- end -}}

{{- define "vgpuscope.check.webhook" -}}
{{- $web := .Values.extender.web -}}
{{- with .Values.extender.webhook -}}
{{- if .enabled -}}
{{- if and .secret .certManager.enabled -}}
{{- fail "extender.webhook: set only one of secret and certManager.enabled." -}}
{{- end -}}
{{- if and $web.secret .certManager.enabled -}}
{{- fail "extender.webhook: with extender.web.secret, the certificate is that of its web.yaml. Unset certManager.enabled and set caBundle." -}}
{{- end -}}
{{- if and $web.secret (not $web.tls) -}}
{{- fail "extender.webhook: the API server calls a webhook only with TLS. Set extender.web.tls, and tls_server_config in the web.yaml of extender.web.secret." -}}
{{- end -}}
{{- if not (or $web.secret .secret .certManager.enabled) -}}
{{- fail "extender.webhook: a certificate is needed. Name a Secret in extender.webhook.secret, with extender.webhook.caBundle, or set extender.webhook.certManager.enabled." -}}
{{- end -}}
{{- if and (not .certManager.enabled) (not .caBundle) -}}
{{- fail "extender.webhook: without caBundle the API server does not trust the certificate. Set extender.webhook.caBundle to its authority, in base64." -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* NAMESPACE/NAME of a Deployment of HAMi's scheduler that has replicas; nothing if none runs, or with helm template. */}}
{{- define "vgpuscope.hamiScheduler" -}}
{{- range (lookup "apps/v1" "Deployment" "" "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- if and (eq (get $labels "app.kubernetes.io/component") "hami-scheduler") (gt (int .spec.replicas) 0) -}}
{{ .metadata.namespace }}/{{ .metadata.name }}{{ break }}
{{- end -}}
{{- end -}}
{{- end -}}
