{{- define "walkgraph.labels" -}}
app.kubernetes.io/name: walkgraph
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "walkgraph.head" -}}
{{ .Release.Name }}-head-svc:6379
{{- end }}

{{/* The fields of all pods. Given: root, on (the values of its kind). */}}
{{- define "walkgraph.pod" -}}
# Nothing in them asks Kubernetes.
automountServiceAccountToken: false
# Kubernetes would set WALKGRAPH_PORT to the address of a service called `walkgraph`.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .on.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .on.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: home
    emptyDir: {}
  - name: tmp
    emptyDir: {}
  - name: shared-memory
    emptyDir: { medium: Memory, sizeLimit: {{ .on.sharedMemory }} }
{{- with .root.Values.checkpoints }}
  - name: checkpoints
    persistentVolumeClaim: { claimName: {{ . }}, readOnly: true }
{{- end }}
{{- end }}

{{/* The fields of the container of all pods, as walkgraph.pod. */}}
{{- define "walkgraph.container" -}}
image: {{ required "set image.name to the image with Ray" .root.Values.image.name }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
resources:
  requests:
    cpu: {{ .on.cpus | quote }}
    memory: {{ .on.memory }}
  limits:
    memory: {{ .on.memory }}
{{- with .on.gpus }}
    nvidia.com/gpu: {{ . }}
{{- end }}
volumeMounts:
  - { name: home, mountPath: /var/lib/walkgraph }
  - { name: tmp, mountPath: /tmp }
  - { name: shared-memory, mountPath: /dev/shm }
{{- if .root.Values.checkpoints }}
  - { name: checkpoints, mountPath: /checkpoints, readOnly: true }
{{- end }}
{{- end }}

{{/* The variables of all pods. */}}
{{- define "walkgraph.env" -}}
# The volume is root's: the home is a folder in it.
- { name: WALKGRAPH_HOME, value: /var/lib/walkgraph/home }
- { name: RAY_AUTH_MODE, value: token }
- name: RAY_AUTH_TOKEN
  valueFrom:
    secretKeyRef: { name: {{ .Values.secret }}, key: auth_token }
{{- range $name, $value := .Values.env }}
- { name: {{ $name }}, value: {{ $value | quote }} }
{{- end }}
{{- end }}
