{{/* Certificates: from secrets, or from cert-manager's csi-driver. */}}

{{/* Flags of a program: (dict "root" $ "folder" folder "name" name of the file in a secret). */}}
{{- define "embla.tls.flags" -}}
{{- if .root.Values.tls.certManager.issuer -}}
--tls-cert={{ .folder }}/tls.crt --tls-key={{ .folder }}/tls.key --tls-ca={{ .folder }}/ca.crt
{{- else -}}
--tls-cert={{ .folder }}/{{ .name }}.pem --tls-ca={{ .folder }}/ca.pem
{{- end -}}
{{- if .root.Values.tls.revokedConfigMap }} --tls-revoked=/etc/embla/revoked{{ end -}}
{{- end }}

{{- define "embla.revoked.mount" -}}
{{- if .Values.tls.revokedConfigMap -}}
- {name: revoked, mountPath: /etc/embla/revoked, readOnly: true}
{{- end -}}
{{- end }}

{{- define "embla.revoked.volume" -}}
{{- with .Values.tls.revokedConfigMap -}}
- name: revoked
  configMap: {name: {{ . }}}
{{- end -}}
{{- end }}

{{/* A volume: (dict "root" $ "volume" name "role" role "secret" name "files" list or empty "usages"
     text). */}}
{{- define "embla.tls.volume" -}}
{{- $issuer := .root.Values.tls.certManager -}}
- name: {{ .volume }}
  {{- if $issuer.issuer }}
  csi:
    driver: csi.cert-manager.io
    readOnly: true
    volumeAttributes:
      csi.cert-manager.io/issuer-name: {{ $issuer.issuer | quote }}
      csi.cert-manager.io/issuer-kind: {{ $issuer.kind | quote }}
      csi.cert-manager.io/issuer-group: {{ $issuer.group | quote }}
      csi.cert-manager.io/uri-sans: "spiffe://{{ $issuer.cluster }}/{{ .role }}/${POD_NAME}"
      csi.cert-manager.io/key-usages: {{ .usages | quote }}
      csi.cert-manager.io/key-encoding: PKCS8
      csi.cert-manager.io/duration: {{ $issuer.duration | quote }}
      csi.cert-manager.io/fs-group: "10001"
  {{- else }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    {{- with .files }}
    items:
      {{- range . }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
    {{- end }}
  {{- end }}
{{- end }}

{{- define "embla.key.init" -}}
# A key file has to be its reader's own, which a secret's never is.
- name: key
  {{- include "embla.imageLines" . | nindent 2 }}
  command: [install, --mode=0600, /etc/embla/cluster.key, /run/embla/cluster.key]
  securityContext: {{- include "embla.locked" . | nindent 4 }}
  resources: {{- include "embla.little" . | nindent 4 }}
  volumeMounts:
    - {name: key, mountPath: /etc/embla, readOnly: true}
    - {name: run, mountPath: /run/embla}
{{- end }}

{{- define "embla.key.volumes" -}}
- name: key
  secret: {secretName: {{ .Values.clusterKeySecret }}}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}
