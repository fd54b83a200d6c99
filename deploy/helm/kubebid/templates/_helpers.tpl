{{- define "kubebid.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "kubebid.labels" -}}
app.kubernetes.io/part-of: kubebid
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "kubebid.engine.selector" -}}
app.kubernetes.io/name: kubebid-engine
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The image of a program: list of the context and the program's name. */}}
{{- define "kubebid.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- if $image.registry }}{{ trimSuffix "/" $image.registry }}/{{ end }}kubebid/{{ index . 1 }}:{{ $image.tag | default (index . 0).Chart.AppVersion -}}
{{- end -}}

{{- define "kubebid.adminSecret" -}}
{{- .Values.engine.adminTokenSecretName | default (printf "%s-admin" (include "kubebid.name" .)) -}}
{{- end -}}

{{- define "kubebid.endpoint" -}}
{{- printf "%s://%s-engine.%s.svc:7440" (ternary "https" "http" (not (empty .Values.engine.tlsSecretName))) (include "kubebid.name" .) .Release.Namespace -}}
{{- end -}}

{{/* What makes the operator's machines: "external" or "kwok"; empty if it bids for no nodes. */}}
{{- define "kubebid.provisioner" -}}
{{- $env := .Values.operator.env -}}
{{- $controllers := $env.KUBEBID_OPERATOR_CONTROLLERS | default "bidnodes" -}}
{{- if contains "bidnodes" (toString $controllers) }}{{ $env.KUBEBID_PROVISIONER | default "kwok" }}{{ end -}}
{{- end -}}
