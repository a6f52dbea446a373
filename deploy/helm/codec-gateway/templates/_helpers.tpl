{{- define "codec-gateway.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels of one component: include "codec-gateway.labels" (list . "gateway") */}}
{{- define "codec-gateway.labels" -}}
{{- $root := index . 0 -}}
{{ include "codec-gateway.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end }}

{{- define "codec-gateway.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "codec-gateway.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "codec-gateway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The model's volumes, and what fills them where there is no claim. */}}
{{- define "codec-gateway.modelVolumes" -}}
- name: models
  {{- if .Values.model.existingClaim }}
  persistentVolumeClaim: {claimName: {{ .Values.model.existingClaim }}, readOnly: true}
  {{- else }}
  emptyDir: {sizeLimit: 1Gi}
- name: put-model
  configMap: {name: {{ include "codec-gateway.fullname" . }}-put-model}
  {{- end }}
{{- end }}

{{- define "codec-gateway.modelInit" -}}
{{- if not .Values.model.existingClaim }}
- name: model
  image: {{ .Values.image.embedded }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [python, /put-model/put_model.py]
  args: ["/models/{{ .Values.model.file }}", {{ .Values.model.sha256 | quote }}]
  securityContext: {{- include "codec-gateway.containerSecurity" . | nindent 4 }}
  resources:
    requests: {cpu: 100m, memory: 64Mi}
    limits: {memory: 256Mi}
  volumeMounts:
    - {name: models, mountPath: /models}
    - {name: put-model, mountPath: /put-model, readOnly: true}
    - {name: tmp, mountPath: /tmp}
{{- end }}
{{- end }}

{{/* The pins that every pod begins with. */}}
{{- define "codec-gateway.pinsInit" -}}
- name: pins
  image: {{ .Values.image.gateway }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [python, -c]
  args: ["import pathlib, shutil; to = pathlib.Path('/state/codec-gateway'); to.mkdir(mode=0o700, exist_ok=True); shutil.copyfile('/pins/pins.json', to / 'pins.json')"]
  securityContext: {{- include "codec-gateway.containerSecurity" . | nindent 4 }}
  resources:
    requests: {cpu: 50m, memory: 32Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    - {name: state, mountPath: /state}
    - {name: pins, mountPath: /pins, readOnly: true}
{{- end }}

{{/* The engine's container, in a pod of its own or beside the gateway. Beside it the engine is reached by loopback. */}}
{{- define "codec-gateway.engineContainer" -}}
{{- $host := ternary "127.0.0.1" "0.0.0.0" (eq .Values.engine.mode "sidecar") -}}
- name: engine
  {{- if eq .Values.engine.kind "gpu" }}
  image: {{ .Values.engine.gpuImage }}
  args:
    - --host
    - {{ $host }}
    - --port
    - "8080"
    - --model
    - /models/{{ .Values.model.file }}
    - --ctx-size
    - {{ .Values.engine.context | quote }}
    - --parallel
    - {{ .Values.engine.slots | quote }}
    - --n-gpu-layers
    - "999"
    - --jinja
    - --cache-ram
    - {{ .Values.engine.cacheMib | quote }}
    - --no-webui
  env:
    - {name: HOME, value: /tmp}
  {{- else }}
  image: {{ .Values.image.embedded }}
  args: [engine, --host, {{ $host }}, --model, "/models/{{ .Values.model.file }}"]
  env:
    - {name: CODEC_GATEWAY_ENGINE__CONTEXT, value: {{ .Values.engine.context | quote }}}
    - {name: CODEC_GATEWAY_ENGINE__SLOTS, value: {{ .Values.engine.slots | quote }}}
    - {name: CODEC_GATEWAY_ENGINE__THREADS, value: {{ .Values.engine.threads | quote }}}
    - {name: CODEC_GATEWAY_ENGINE__CACHE_MIB, value: {{ .Values.engine.cacheMib | quote }}}
    - {name: CODEC_GATEWAY_ENGINE__EXCLUSIVE, value: {{ eq .Values.engine.mode "sidecar" | quote }}}
  {{- end }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  securityContext: {{- include "codec-gateway.containerSecurity" . | nindent 4 }}
  {{- if eq .Values.engine.mode "sidecar" }}
  # Reached by loopback alone, so the kubelet asks from inside; a model takes its time to load.
  {{- if eq .Values.engine.kind "cpu" }}
  startupProbe:
    exec: {command: [python, -m, gateway.cli.probe, "http://127.0.0.1:8080/health"]}
    periodSeconds: 2
    failureThreshold: 150
  {{- end }}
  {{- else }}
  ports: [{name: llama, containerPort: 8080}]
  startupProbe:
    httpGet: {path: /health, port: llama}
    periodSeconds: 2
    failureThreshold: 150
  readinessProbe:
    httpGet: {path: /health, port: llama}
    periodSeconds: 10
    timeoutSeconds: 5
  {{- end }}
  resources:
    {{- $resources := deepCopy .Values.engine.resources }}
    {{- if eq .Values.engine.kind "gpu" }}
    {{- $_ := set $resources "limits" (set (deepCopy ($resources.limits | default dict)) "nvidia.com/gpu" .Values.engine.gpus) }}
    {{- end }}
    {{- toYaml $resources | nindent 4 }}
  volumeMounts:
    - {name: models, mountPath: /models, readOnly: true}
    - {name: tmp, mountPath: /tmp}
{{- end }}
