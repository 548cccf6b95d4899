{{- define "horovod.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "horovod.ranks" -}}
{{ mul .Values.workers .Values.slotsPerWorker }}
{{- end }}

{{/* What both kinds of pod have in common. */}}
{{- define "horovod.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext:
  runAsUser: {{ .Values.runAsUser }}
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* And both kinds of container. */}}
{{- define "horovod.container" -}}
image: {{ include "horovod.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The words that name hosts and ranks to the launcher. */}}
{{- define "horovod.launcherArgs" -}}
- --hostfile
- /etc/mpi/hostfile
- -np
- {{ include "horovod.ranks" . | quote }}
{{- if eq .Values.launcher "mpirun" }}
- --bind-to
- none
- --map-by
- slot
- -x
- HOROVOD_EXPECTED_SIZE={{ include "horovod.ranks" . }}
- -x
- HOROVOD_EXPECTED_HOSTS={{ .Values.workers }}
{{- range $name, $_ := .Values.env }}
- -x
- {{ $name }}
{{- end }}
{{- end }}
{{- range .Values.launcherArgs }}
- {{ . | quote }}
{{- end }}
{{- range .Values.command }}
- {{ . | quote }}
{{- end }}
{{- end }}
