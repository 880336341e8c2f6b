{{- define "fermata.account" -}}
{{- .Values.serviceAccount.existing | default .Release.Name -}}
{{- end -}}

{{- define "fermata.selector" -}}
app.kubernetes.io/name: fermata
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "fermata.labels" -}}
{{ include "fermata.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "fermata.subject" -}}
- kind: ServiceAccount
  name: {{ include "fermata.account" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}

{{- /* A role of the operator's in one namespace, and who has it. */ -}}
{{- define "fermata.role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name | quote }}
  namespace: {{ .namespace | quote }}
  labels: {{- include "fermata.labels" .root | nindent 4 }}
rules: {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name | quote }}
  namespace: {{ .namespace | quote }}
  labels: {{- include "fermata.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name | quote }}
subjects: {{- include "fermata.subject" .root | nindent 2 }}
{{- end -}}
