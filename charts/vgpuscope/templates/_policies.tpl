{{/* What RBAC cannot say: who may patch pods and nodes may only change annotations (and labels) of HAMi and vgpuscope.
     .labels: whether labels of pods may change, too. .ownNode: only the node on which the pod runs, and its pods. */}}
{{- define "vgpuscope.admissionPolicy" -}}
{{- $name := include "vgpuscope.clusterWideName" . -}}
{{- $ours := "k.startsWith('hami.io/') || k.startsWith('vgpuscope.io/')" -}}
{{- $kept := "(variables.%[1]s.all(k, %[2]s k in variables.old_%[1]s && variables.old_%[1]s[k] == variables.%[1]s[k]) && variables.old_%[1]s.all(k, %[2]s k in variables.%[1]s))" -}}
---
# {{ .component }}: the account may patch pods and nodes. RBAC knows no fields, this does.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels:
    {{- include "vgpuscope.labels" . | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [UPDATE]
        resources: [nodes, pods]
  matchConditions:
    - name: this-account
      expression: request.userInfo.username == 'system:serviceaccount:{{ .root.Release.Namespace }}:{{ include "vgpuscope.fullname" .root }}-{{ .component }}'
  variables:
    {{- range list "annotations" "labels" }}
    - name: {{ . }}
      expression: "has(object.metadata.{{ . }}) ? object.metadata.{{ . }} : {}"
    - name: old_{{ . }}
      expression: "has(oldObject.metadata.{{ . }}) ? oldObject.metadata.{{ . }} : {}"
    {{- end }}
  validations:
    - expression: object.spec == oldObject.spec
      message: vgpuscope changes no spec
    - expression: {{ printf $kept "annotations" (printf "%s ||" $ours) | quote }}
      message: vgpuscope changes only annotations hami.io/… and vgpuscope.io/…
    - expression: {{ printf "%s%s" (ternary (printf "request.resource.resource == 'pods' && %s || " (printf $kept "labels" (printf "%s ||" $ours))) "" .labels) (printf $kept "labels" "") | quote }}
      message: vgpuscope changes {{ if .labels }}only labels hami.io/… and vgpuscope.io/… of pods{{ else }}no labels{{ end }}
    {{- if .ownNode }}
    # Kubernetes 1.32 and later tell the node of a pod's token
    - expression: >-
        !has(request.userInfo.extra) || !('authentication.kubernetes.io/node-name' in request.userInfo.extra) ||
        request.userInfo.extra['authentication.kubernetes.io/node-name'] ==
        [request.resource.resource == 'pods' ? object.spec.?nodeName.orValue('') : object.metadata.name]
      message: the plugin changes only its own node and the pods on it
    {{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "vgpuscope.labels" . | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
{{- end -}}

{{/* Whether the API server has such policies (Kubernetes 1.30 and later). */}}
{{- define "vgpuscope.admissionPolicies" -}}
{{- if and .Values.admissionPolicy.enabled (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) }}yes{{ end -}}
{{- end -}}
