{{- define "operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of what is in the release's namespace. */}}
{{- define "operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "operator.name" .) .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "operator.name" .) | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of what holds in the whole cluster, where another tenant's operator may be too. */}}
{{- define "operator.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "operator.fullname" .) -}}
{{- end -}}

{{/* The ServiceAccount of the operator. With the other one's rights it would be another. */}}
{{- define "operator.serviceAccount" -}}
{{- $name := default (include "operator.fullname" .) .Values.serviceAccount.name -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false: serviceAccount.name has to say which one there is" -}}
{{- end -}}
{{- if eq $name .Values.workload.serviceAccount -}}
{{- fail (printf "%s is the name of the operator's ServiceAccount and of workload.serviceAccount, whose tokens others get: want two names" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "operator.selector" -}}
app.kubernetes.io/name: {{ include "operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
{{ include "operator.commonLabels" . }}
{{- end -}}

{{/* clusterctl finds what belongs to a provider by the last two of them. */}}
{{- define "operator.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: nstance
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
cluster.x-k8s.io/provider: infrastructure-nstance
clusterctl.cluster.x-k8s.io: ""
{{- end -}}

{{- define "operator.image" -}}
{{- if and .Values.image.digest .Values.image.tag -}}
{{- fail "image.tag and image.digest are both set: the chart of a release has a digest; set it to \"\" to go by the tag" -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default (printf "v%s" .Chart.AppVersion) .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* What keeps every container from doing harm. */}}
{{- define "operator.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "operator.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}
