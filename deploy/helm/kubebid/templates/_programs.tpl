{{- /*
Writes the manifests of a program: list of the context and a dict of
  folder, resources: the kustomize base in files/, and its files
  overlays: folders in files/ that change it, if any. Their patches are JSON patches, in their kustomization.yaml
  overlayResources: further manifests of the overlays
  values: env and egressPorts
  secretName: the secret with its token
*/}}
{{- define "kubebid.program" }}
{{- $context := index . 0 }}
{{- $program := index . 1 }}
{{- $name := printf "kubebid-%s" $program.folder }}
{{- $namespace := $context.Release.Namespace }}
{{- $image := $context.Values.image }}
{{- $settings := printf "%s-%s-settings" (include "kubebid.name" $context) $program.folder }}
{{- $labels := include "kubebid.labels" $context | fromYaml }}
{{- $files := list }}
{{- range $program.resources }}{{ $files = append $files (printf "files/%s/%s" $program.folder .) }}{{ end }}
{{- range $program.overlayResources }}{{ $files = append $files (printf "files/%s" .) }}{{ end }}
{{- $patches := list }}
{{- range $program.overlays }}{{ $patches = concat $patches (printf "files/%s/kustomization.yaml" . | $context.Files.Get | fromYaml).patches }}{{ end }}
{{- /* The Lease is where the Role for it is. */}}
{{- $defaults := dict "KUBEBID_ENDPOINTS" (include "kubebid.endpoint" $context) "KUBEBID_OPERATOR_LEASE_NAMESPACE" $namespace }}
{{- if has "versions" $program.overlays }}
{{- $_ := set $defaults "KUBEBID_OPERATOR_WEBHOOK_NAMESPACE" $namespace }}
{{- $_ := set $defaults "KUBEBID_OPERATOR_WEBHOOK_NAME" (printf "kubebid-operator-webhook.%s.svc" $namespace) }}
{{- end }}
{{- $ca := $context.Values.engine.caSecretName }}
{{- if $ca }}{{ $_ := set $defaults "KUBEBID_CA_FILE" "/run/secrets/kubebid/ca.crt" }}{{ end }}
{{- $env := merge (dict) $program.values.env $defaults }}
{{- range $path := $files }}
{{- range $text := splitList "\n---\n" (printf "\n%s" ($context.Files.Get $path)) }}
{{- $object := fromYaml $text }}
{{- if hasKey $object "Error" }}{{ fail (printf "%s: %s" $path $object.Error) }}{{ end }}
{{- if $object.kind }}
{{- range $patch := $patches }}
{{- if and (eq $patch.target.kind $object.kind) (eq $patch.target.name $object.metadata.name) }}
{{- range fromYamlArray $patch.patch }}
{{- $path := splitList "/" (trimPrefix "/" .path) }}
{{- $object = (include "kubebid.patched" (dict "in" $object "op" .op "path" $path "value" .value) | fromJson).out }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $object.metadata "labels" (merge (dict "app.kubernetes.io/name" $name) $labels) }}
{{- if not (has $object.kind (list "ClusterRole" "ClusterRoleBinding" "CustomResourceDefinition")) }}
{{- $_ := set $object.metadata "namespace" $namespace }}
{{- end }}
{{- range $object.subjects }}
{{- $_ := set . "namespace" $namespace }}
{{- end }}
{{- if eq $object.kind "CustomResourceDefinition" }}
{{- /* Without its definition every object of a kind is deleted. */}}
{{- $_ := set $object.metadata "annotations" (dict "helm.sh/resource-policy" "keep") }}
{{- if $object.spec.conversion }}{{ $_ := set $object.spec.conversion.webhook.clientConfig.service "namespace" $namespace }}{{ end }}
{{- end }}
{{- if eq $object.kind "Deployment" }}
{{- $spec := $object.spec.template.spec }}
{{- $_ := set $object.spec.template.metadata "annotations" (dict "checksum/settings" ($env | toYaml | sha256sum)) }}
{{- with $image.pullSecrets }}{{ $_ := set $spec "imagePullSecrets" . }}{{ end }}
{{- range $container := $spec.containers }}
{{- $_ := set $container "image" (include "kubebid.image" (list $context "operator")) }}
{{- $_ := set $container "imagePullPolicy" (empty $image.registry | ternary "Never" $image.pullPolicy) }}
{{- $_ := set (index $container.envFrom 0).configMapRef "name" $settings }}
{{- end }}
{{- range $volume := $spec.volumes }}
{{- if and $volume.secret $ca }}
{{- $authority := dict "secret" (dict "name" $ca "items" (list (dict "key" "ca.crt" "path" "ca.crt"))) }}
{{- $_ := set $volume "projected" (dict "defaultMode" $volume.secret.defaultMode "sources" (list (dict "secret" (dict "name" $program.secretName)) $authority)) }}
{{- $_ := unset $volume "secret" }}
{{- else if $volume.secret }}
{{- $_ := set $volume.secret "secretName" $program.secretName }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq $object.kind "NetworkPolicy" }}
{{- range $port := $program.values.egressPorts }}
{{- $_ := set $object.spec "egress" (append $object.spec.egress (dict "ports" (list (dict "port" (int $port))))) }}
{{- end }}
{{- end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
{{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $settings }}
  namespace: {{ $namespace }}
  labels: {{- $labels | toYaml | nindent 4 }}
data:
  {{- range $key, $value := $env }}
  {{ $key }}: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
  {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ include "kubebid.name" $context }}-{{ $program.folder }}-metrics
  namespace: {{ $namespace }}
  labels:
    {{- $labels | toYaml | nindent 4 }}
    app.kubernetes.io/name: {{ $name }}
    kubebid.io/job: {{ $program.folder }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    app.kubernetes.io/name: {{ $name }}
  ports:
    - {name: ops, port: 7443, targetPort: ops}
{{ end -}}

{{- /*
Returns {"out": …}: a value after one step of a JSON patch (RFC 6902): dict of in, op, path (the parts of the pointer) and value.
*/}}
{{- define "kubebid.patched" -}}
{{- $out := .in }}
{{- if not (has .op (list "add" "replace" "test")) }}{{ fail (printf "a patch has the operation %s" .op) }}{{ end }}
{{- if empty .path }}
{{- if ne .op "test" }}{{ $out = .value }}{{ else if ne (toJson .in) (toJson .value) }}{{ fail (printf "a patch expects %s" (toJson .value)) }}{{ end }}
{{- else }}
{{- $key := first .path | replace "~1" "/" | replace "~0" "~" }}
{{- $below := dict "op" .op "path" (rest .path) "value" .value }}
{{- if kindIs "map" .in }}
{{- $_ := set $below "in" (get .in $key) }}
{{- $_ := set $out $key (include "kubebid.patched" $below | fromJson).out }}
{{- else if and (kindIs "slice" .in) (eq $key "-") }}
{{- $out = append .in .value }}
{{- else if kindIs "slice" .in }}
{{- $out = list }}
{{- range $at, $item := .in }}
{{- if eq (toString $at) $key }}
{{- $_ := set $below "in" $item }}
{{- $item = (include "kubebid.patched" $below | fromJson).out }}
{{- end }}
{{- $out = append $out $item }}
{{- end }}
{{- else }}
{{- fail (printf "a patch finds nothing at %s" $key) }}
{{- end }}
{{- end }}
{{- dict "out" $out | toJson }}
{{- end -}}
