{{- define "fermata.account" -}}
{{- .Values.serviceAccount.existing | default .Release.Name -}}
{{- end -}}

{{- define "fermata.selector" -}}
app.kubernetes.io/name: fermata
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "fermata.labels" -}}
{{ include "fermata.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "fermata.subject" -}}
- kind: ServiceAccount
  name: {{ include "fermata.account" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
