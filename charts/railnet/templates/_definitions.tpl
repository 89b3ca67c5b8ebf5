{{/* The names of images. */}}
{{- define "railnet.image" -}}
{{ .Values.image.registry }}/railnet:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "railnet.admission-image" -}}
{{ .Values.image.registry }}/railnet-admission:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Where a distribution has its CNI folders, kubelet's root folder, the runtime's socket and flannel's lease, if not where Railnet looks by itself.
     docs/install.md has their sources. Each has kubelet's device plugins in /var/lib/kubelet/device-plugins. */}}
{{- define "railnet.distribution" -}}
{{- $hosts := dict "kubeadm" dict "talos" dict
    "rke2" (dict "cri" "/run/k3s/containerd/containerd.sock")
    "k0s" (dict "kubelet" "/var/lib/k0s/kubelet" "cri" "/run/k0s/containerd.sock")
    "k3s" (dict "cniConf" "/var/lib/rancher/k3s/agent/etc/cni/net.d" "cniBin" "/var/lib/rancher/k3s/data/cni" "cri" "/run/k3s/containerd/containerd.sock")
    "microk8s" (dict "cniConf" "/var/snap/microk8s/current/args/cni-network" "cniBin" "/var/snap/microk8s/current/opt/cni/bin"
      "kubelet" "/var/snap/microk8s/common/var/lib/kubelet" "cri" "/var/snap/microk8s/common/run/containerd.sock"
      "flannel" "/var/snap/microk8s/common/run/flannel/subnet.env")
    "openshift" (dict "cniConf" "/etc/kubernetes/cni/net.d" "cniBin" "/var/lib/cni/bin" "cri" "/run/crio/crio.sock") -}}
{{ get $hosts .Values.distribution | toJson }}
{{- end }}

{{/* The keys of node.yaml that features set, as JSON. Takes: root, and configuration, which is node.yaml without them. */}}
{{- define "railnet.feature-configuration" -}}
{{- $values := .root.Values -}}
{{- $keys := dict -}}
{{- $publish := dict -}}
{{- if $values.topologyLabels.enabled }}{{ $_ := set $publish "topologyLabels" true }}{{ end -}}
{{- if $values.railsCondition.enabled }}{{ $_ := set $publish "railsCondition" true }}{{ end -}}
{{- if $values.railsCondition.taint }}{{ $_ := set $publish "railsTaint" true }}{{ end -}}
{{- if $values.railsCondition.kernelMessages }}{{ $_ := set $publish "kernelMessages" true }}{{ end -}}
{{- if $publish }}{{ $_ := set $keys "publish" $publish }}{{ end -}}
{{- $admission := dict -}}
{{- with $values.webhook.priorityClass }}{{ $_ := set $admission "priorityClass" . }}{{ end -}}
{{- if not $values.webhook.environment }}{{ $_ := set $admission "environment" false }}{{ end -}}
{{- if $admission }}{{ $_ := set $keys "admission" $admission }}{{ end -}}
{{- with $values.controllers.stickyAddresses -}}
{{- if .enabled -}}
{{- $_ := set $keys "networks" (dict .network (dict "ipam" (dict "type" "sticky" "range" .range "rails" (int .rails)))) -}}
{{- /* Each namespace may use the network, beside those that it may use without the feature. */ -}}
{{- $limits := dict -}}
{{- range $namespace, $limit := merge (deepCopy ($.configuration.limits | default dict)) (dict "*" dict) -}}
{{- $networks := $limit.networks | default (list "default") -}}
{{- $_ := set $limits $namespace (dict "networks" (uniq (append $networks $values.controllers.stickyAddresses.network))) -}}
{{- end -}}
{{- $_ := set $keys "limits" $limits -}}
{{- end -}}
{{- end -}}
{{ $keys | toJson }}
{{- end }}

{{/* One configuration merged over another, as JSON. An `ipam` with its type replaces the whole: the keys of another type would be unknown to it.
     Takes: below, above. */}}
{{- define "railnet.merged" -}}
{{- $merged := mergeOverwrite (deepCopy .below) (deepCopy .above) -}}
{{- range $name, $network := dig "networks" dict .above -}}
{{- if dig "ipam" "type" "" ($network | default dict) }}{{ $_ := set (get $merged.networks $name) "ipam" (deepCopy $network.ipam) }}{{ end -}}
{{- end -}}
{{ $merged | toJson }}
{{- end }}

{{/* node.yaml of a group of nodes, as JSON without apiVersion and kind. Takes: root, group. */}}
{{- define "railnet.configuration" -}}
{{- $configuration := dict -}}
{{- with include "railnet.distribution" .root | fromJson }}{{ $_ := set $configuration "host" . }}{{ end -}}
{{- if eq .root.Values.offer "dra" }}{{ $_ := set $configuration "offer" "dra" }}{{ end -}}
{{- range $layer := list .root.Values.node.configuration (.group.configuration | default dict) -}}
{{- $configuration = include "railnet.merged" (dict "below" $configuration "above" $layer) | fromJson -}}
{{- end -}}
{{- $features := include "railnet.feature-configuration" (dict "root" .root "configuration" $configuration) | fromJson -}}
{{ include "railnet.merged" (dict "below" $configuration "above" $features) }}
{{- end }}

{{/* The name of a group's DaemonSet and, with -node before the group's name, of its ConfigMap. */}}
{{- define "railnet.group-suffix" -}}
{{- if .name }}-{{ .name }}{{ end -}}
{{- end }}

{{/* The groups of nodes in the order in which they take nodes; the last one, without a name, has the rest. As JSON: groups. */}}
{{- define "railnet.groups" -}}
{{ dict "groups" (append .Values.node.groups (dict "name" "")) | toJson }}
{{- end }}

{{/* The resources of nodes that offer their VFs by DRA, as JSON: resources; none if no group of nodes does. */}}
{{- define "railnet.dra-resources" -}}
{{- $resources := list -}}
{{- range $group := (include "railnet.groups" . | fromJson).groups -}}
{{- $configuration := include "railnet.configuration" (dict "root" $ "group" $group) | fromJson -}}
{{- if eq (dig "offer" "device-plugin" $configuration) "dra" -}}
{{- range (dig "pools" (list (dict "resource" "rdma/ib_vf")) $configuration) }}{{ $resources = append $resources .resource }}{{ end -}}
{{- end -}}
{{- end -}}
{{ dict "resources" (uniq $resources) | toJson }}
{{- end }}

{{/* The resources of the VFs of all nodes, as JSON: resources. */}}
{{- define "railnet.vf-resources" -}}
{{- $resources := list -}}
{{- range $group := (include "railnet.groups" . | fromJson).groups -}}
{{- $configuration := include "railnet.configuration" (dict "root" $ "group" $group) | fromJson -}}
{{- range (dig "pools" (list (dict "resource" "rdma/ib_vf")) $configuration) }}{{ $resources = append $resources .resource }}{{ end -}}
{{- end -}}
{{ dict "resources" (uniq $resources) | toJson }}
{{- end }}

{{/* The Secrets with which kubelet fetches the images, as a part of a pod's specification. */}}
{{- define "railnet.pull-secrets" -}}
{{- with .Values.image.pullSecrets }}
      imagePullSecrets:
      {{- range . }}
      - name: {{ . | quote }}
      {{- end }}
{{- end }}
{{- end }}
