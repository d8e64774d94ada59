{{/*
What the objects of this chart have in common. A helper that needs more than the root takes a list: the root first.

Every container is called as its service in compose.yaml, and so is every Service: `redis` is at redis:6379, and
`web-redis` at web-redis:8000, here as there. That makes one release a namespace.
*/}}

{{/* Labels of an object: (list $ NAME). */}}
{{- define "lab.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{ include "lab.selector" . }}
{{- end }}

{{/* Labels by which an object's pods are found; they never change: (list $ NAME). */}}
{{- define "lab.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/*
What every pod has: (list $ UID GID). The users are those of compose.yaml.

- No token: nothing here speaks to the cluster.
- No service links: Kubernetes would give each container variables for every Service of the namespace, and a Service
  called `control` makes CONTROL_PORT=tcp://10.…, which is a setting of the control page.
*/}}
{{- define "lab.pod" -}}
{{- $root := index . 0 -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ index . 1 }}
  runAsGroup: {{ index . 2 }}
  fsGroup: {{ index . 2 }}          # volumes belong to this group
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* What every container has: (list $ RESOURCES), where RESOURCES is a key of .Values.resources. */}}
{{- define "lab.container" -}}
{{- $root := index . 0 -}}
{{- $needs := index $root.Values.resources (index . 1) -}}
imagePullPolicy: {{ $root.Values.imagePullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources:
  requests: {cpu: {{ $needs.cpu }}m, memory: {{ $needs.memory }}Mi}
  limits: {cpu: {{ $needs.cpuLimit | default $needs.cpu }}m, memory: {{ $needs.memory }}Mi}
{{- end }}

{{/*
How often a readiness probe asks, as Compose's health checks do. Ready means what healthy means there: it is shown, and
nothing follows from it. Services pass on requests to pods that are not ready, too (see "lab.service").
*/}}
{{- define "lab.health" -}}
periodSeconds: 5
timeoutSeconds: 5
failureThreshold: 3
{{- end }}

{{/* The same where nobody waits for the answer. */}}
{{- define "lab.healthLast" -}}
periodSeconds: 10
timeoutSeconds: 5
failureThreshold: 2
{{- end }}

{{/*
How often a liveness probe asks. Compose has nothing like it: there an unhealthy container is left as it is. A process
is started anew here only if it has not moved for two minutes. None of these probes asks the server: to be drowned is
the incident, and a restart would be its cure. Where a page says it the kubelet asks itself, which costs nothing; a program
that it runs for each question (exec) is another process in the container, every time.
*/}}
{{- define "lab.alive" -}}
periodSeconds: 20
timeoutSeconds: 5
failureThreshold: 6
{{- end }}

{{/* How long a process may take to start, two minutes, before the liveness probe begins to ask. */}}
{{- define "lab.starting" -}}
periodSeconds: 5
timeoutSeconds: 5
failureThreshold: 24
{{- end }}

{{/* /tmp as in Compose: in memory, gone with the pod. What is in it counts against the container's memory. */}}
{{- define "lab.tmp" -}}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end }}

{{/*
A Service: (list $ NAME COMPONENT PORTS), where PORTS is a dictionary of names and numbers.

publishNotReadyAddresses: a server that does not answer in time must go on to get its requests. Without this line its
storefront would be told "connection refused" after three late answers, and the queue that is the incident would be gone.
*/}}
{{- define "lab.service" -}}
{{- $root := index . 0 -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ index . 1 }}
  labels: {{- include "lab.labels" (list $root (index . 2)) | nindent 4 }}
spec:
  publishNotReadyAddresses: true
  selector: {{- include "lab.selector" (list $root (index . 2)) | nindent 4 }}
  ports:
    {{- range $name, $port := index . 3 }}
    - {name: {{ $name }}, port: {{ $port }}}
    {{- end }}
{{- end }}

{{/*
The name of a server in series and traces: (list $ SERVER). In a room it begins with the namespace, so that dashboards and
rules, which know the label `server` only, show each group's servers apart.
*/}}
{{- define "lab.series" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.observability.shared }}{{ $root.Release.Namespace }}.{{ end }}{{ index . 1 }}
{{- end }}

{{/*
Names under which the containers call each other's pages. The room's Prometheus adds the namespace to each, and browsers use
that of the ingress.
*/}}
{{- define "lab.hosts" -}}
{{- $names := list "control" -}}
{{- range .Values.servers }}{{ $names = concat $names (list (print "web-" .) (print "locust-" .)) }}{{ end -}}
{{- $all := $names -}}
{{- if .Values.observability.shared -}}
{{- range $names }}{{ $all = append $all (printf "%s.%s.svc" . $.Release.Namespace) }}{{ end -}}
{{- end -}}
{{- if .Values.ingress.enabled }}{{ $all = append $all .Values.ingress.host }}{{ end -}}
{{ concat $all .Values.allowedHosts | join " " }}
{{- end }}

{{/* SCAN's COUNT on a server: (list $ SERVER). */}}
{{- define "lab.scanCount" -}}
{{ (ternary (index . 0).Values.dragonfly (index . 0).Values.redis (eq (index . 1) "dragonfly")).scanCount | int }}
{{- end }}

{{/* Servers that redis_exporter translates for: all but Dragonfly. As JSON. */}}
{{- define "lab.translated" -}}
{{ without .Values.servers "dragonfly" | toJson }}
{{- end }}

{{/* How many containers there are of each kind, as JSON: for the quota. */}}
{{- define "lab.counts" -}}
{{- $servers := len .Values.servers -}}
{{- $watchers := ternary 0 1 .Values.observability.shared -}}
{{- dict "server" $servers "probe" $servers "web" $servers "invalidator" $servers "warmer" $servers "locust" $servers
         "control" (min $servers 1) "lab" (ternary 1 0 .Values.lab.enabled)
         "redisExporter" (min (len (include "lab.translated" . | fromJsonArray)) 1)
         "prometheus" $watchers "tempo" $watchers "grafana" $watchers | toJson -}}
{{- end }}

{{/*
What the release needs at once, as JSON: pods, their cpu and cpuLimit in thousandths of a core, their memory in MiB, and
Services.
*/}}
{{- define "lab.needed" -}}
{{- $counts := include "lab.counts" . | fromJson -}}
{{- $cpu := 0 }}{{ $cpuLimit := 0 }}{{ $memory := 0 }}{{ $pods := 0 }}{{ $services := 0 -}}
{{- range $kind, $needs := .Values.resources -}}
{{- $count := index $counts $kind | int -}}
{{- $cpu = add $cpu (mul $count $needs.cpu) -}}
{{- $cpuLimit = add $cpuLimit (mul $count ($needs.cpuLimit | default $needs.cpu)) -}}
{{- $memory = add $memory (mul $count $needs.memory) -}}
{{- /* The three processes of a storefront are one pod. */ -}}
{{- if not (has $kind (list "invalidator" "warmer")) }}{{ $pods = add $pods $count }}{{ end -}}
{{- $services = add $services $count -}}
{{- end -}}
{{ dict "cpu" $cpu "cpuLimit" $cpuLimit "memory" $memory "pods" $pods "services" $services | toJson }}
{{- end }}

{{/*
The ports at which the room's Prometheus asks a group: pages of the storefronts, of probe, Locust and console,
and redis_exporter. (Dragonfly answers at its own port; see namespace.yaml.)
*/}}
{{- define "lab.scraped" -}}
[{port: 8080}, {port: 8089}, {port: 9101}, {port: 9102}, {port: 9103}, {port: 9104}, {port: 9121}]
{{- end }}

{{/* A quantity as Kubernetes writes it, as a whole number: (list QUANTITY UNITS), UNITS says what each suffix stands for. */}}
{{- define "lab.quantity" -}}
{{- $text := index . 0 | toString -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- mulf (trimSuffix $unit $text | float64) (index (index . 1) $unit | default 0.0) | floor | int64 -}}
{{- end }}
