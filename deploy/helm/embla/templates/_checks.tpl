{{/* What each value alone cannot tell, and values.schema.json therefore does not. */}}
{{- define "embla.checks" -}}
{{- with .Values -}}
{{- if and (gt (int .coordinator.replicas) 1) (not .etcd.endpoints) -}}
{{- fail (printf "coordinator.replicas is %d: several coordinators share their state in etcd; name its members in etcd.endpoints" (int .coordinator.replicas)) -}}
{{- end -}}
{{- if and .etcd.tlsSecret (not .etcd.endpoints) -}}
{{- fail "etcd.tlsSecret is set, and etcd.endpoints is empty: there is no etcd to connect to" -}}
{{- end -}}
{{- if and .tls.certManager.issuer (not .tls.enabled) -}}
{{- fail "tls.certManager.issuer is set, and tls.enabled is false: no certificate would be used" -}}
{{- end -}}
{{- if and .tls.revokedConfigMap (not .tls.enabled) -}}
{{- fail "tls.revokedConfigMap is set, and tls.enabled is false: there are no certificates to revoke" -}}
{{- end -}}
{{- if and .tls.tokensSecret (not .tls.enabled) -}}
{{- fail "tls.tokensSecret is set, and tls.enabled is false: tokens go over TLS only" -}}
{{- end -}}
{{- if and .serviceMonitor.enabled .tls.enabled (not .serviceMonitor.tlsSecret) -}}
{{- fail "serviceMonitor.enabled: with TLS /metrics asks for a certificate; name a secret that has one in serviceMonitor.tlsSecret" -}}
{{- end -}}
{{- if and .serviceMonitor.tlsSecret (not .tls.enabled) -}}
{{- fail "serviceMonitor.tlsSecret is set, and tls.enabled is false: /metrics is plaintext" -}}
{{- end -}}
{{- if and .shard.runtimeClassName (not .shard.gpus) -}}
{{- fail "shard.runtimeClassName is set, and shard.gpus is 0: it is for nodes with GPUs" -}}
{{- end -}}
{{- end -}}
{{- end }}
