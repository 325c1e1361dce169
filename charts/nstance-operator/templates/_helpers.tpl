{{- define "operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of namespaced objects. */}}
{{- define "operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "operator.name" .) .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "operator.name" .) | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of cluster-scoped objects, distinct from those of another tenant's operator. */}}
{{- define "operator.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "operator.fullname" .) -}}
{{- end -}}

{{/* The operator's ServiceAccount, which must differ from workload.serviceAccount. */}}
{{- define "operator.serviceAccount" -}}
{{- $name := default (include "operator.fullname" .) .Values.serviceAccount.name -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false: set serviceAccount.name" -}}
{{- end -}}
{{- if eq $name .Values.workload.serviceAccount -}}
{{- fail (printf "%s can't be both the operator's ServiceAccount and workload.serviceAccount, whose tokens Cluster API gets: use two names" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* The kubeconfig Secret, named after the cluster. */}}
{{- define "operator.kubeconfig" -}}
{{- if .Values.config.cluster_id -}}
{{- printf "%s--%s-kubeconfig" .Values.config.cluster_id (default "default" .Values.config.tenant) -}}
{{- else -}}
{{- .Values.workload.kubeconfigSecret -}}
{{- end -}}
{{- end -}}

{{- define "operator.selector" -}}
app.kubernetes.io/name: {{ include "operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
{{ include "operator.commonLabels" . }}
{{- end -}}

{{/* clusterctl finds a provider's objects by the last two labels. */}}
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
{{- fail "image.tag and image.digest are both set: the chart of a release sets a digest; set it to \"\" to use the tag" -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default (printf "v%s" .Chart.AppVersion) .Values.image.tag) -}}
{{- end -}}
{{- end -}}
