{{/* Pieces that several templates use. */}}

{{/* Labels of objects, but not of pods: a new version of the chart alone restarts nothing. */}}
{{- define "embla.labels" -}}
app.kubernetes.io/part-of: embla
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "embla.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "embla.imageLines" -}}
image: {{ include "embla.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "embla.user" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "embla.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "embla.little" -}}
requests: {cpu: 10m, memory: 32Mi}
limits: {cpu: 500m, memory: 64Mi}
{{- end }}

{{/* The machines on which pods run: nodeSelector and tolerations of the values of a part. */}}
{{- define "embla.placement" -}}
{{- $set := dict -}}
{{- with .nodeSelector }}{{ $_ := set $set "nodeSelector" . }}{{ end -}}
{{- with .tolerations }}{{ $_ := set $set "tolerations" . }}{{ end -}}
{{- if $set }}{{ toYaml $set }}{{ end -}}
{{- end }}

{{/* (dict "part" values "name" name): a machine of its own for each pod. */}}
{{- define "embla.spread" -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels"
    (dict "app.kubernetes.io/name" .name)) -}}
affinity:
  podAntiAffinity:
    {{- if eq .part.spread "required" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      {{- toYaml (list $term) | nindent 6 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm: {{- toYaml $term | nindent 10 }}
    {{- end }}
{{- end }}

{{- define "embla.probes" -}}
{{- $get := dict "port" "metrics" -}}
{{- if .root.Values.tls.enabled }}{{ $_ := set $get "scheme" "HTTPS" }}{{ end -}}
{{- $alive := merge (dict "path" "/healthz") $get -}}
{{- $ready := merge (dict "path" "/readyz") $get -}}
startupProbe:
  httpGet: {{- toYaml $alive | nindent 4 }}
  periodSeconds: {{ .startPeriod }}
  failureThreshold: {{ .startFailures }}
livenessProbe:
  httpGet: {{- toYaml $alive | nindent 4 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {{- toYaml $ready | nindent 4 }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* The coordinators' addresses at a port, with commas: (dict "root" $ "port" 7070). */}}
{{- define "embla.coordinators" -}}
{{- if .root.Values.etcd.endpoints -}}
{{- $addresses := list -}}
{{- range $i := until (int .root.Values.coordinator.replicas) -}}
{{- $addresses = append $addresses
    (printf "embla-coordinator-%d.embla-coordinators:%d" $i (int $.port)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- else -}}
embla-coordinator:{{ .port }}
{{- end -}}
{{- end }}

{{/* Flags, none of them twice: (dict "part" "shard" "args" list "extra" list). */}}
{{- define "embla.args" -}}
{{- $set := list -}}
{{- range .args }}{{ $set = append $set (first (splitList "=" .)) }}{{ end -}}
{{- range .extra -}}
{{- if has (first (splitList "=" .)) $set -}}
{{- fail (printf "%s.extraArgs has %s, which the chart sets itself" $.part .) -}}
{{- end -}}
{{- if eq . "--insecure" -}}
{{- fail (printf "%s.extraArgs has --insecure: set tls.enabled to false instead" $.part) -}}
{{- end -}}
{{- end -}}
{{- range concat .args .extra }}
- {{ . | quote }}
{{- end }}
{{- end }}
