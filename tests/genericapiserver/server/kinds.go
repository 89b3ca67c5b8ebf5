package main

import (
	"reflect"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// kind is what is served, as what resource.
type kind struct {
	name, resource string
	namespaced     bool
}

// group is one version of an API group, which is the only one here.
type group struct {
	version schema.GroupVersion
	add     func(*runtime.Scheme) error
	kinds   []kind
}

var groups = []group{
	{core.SchemeGroupVersion, core.AddToScheme, []kind{
		{"Namespace", "namespaces", false}, {"Node", "nodes", false}, {"Pod", "pods", true}, {"Service", "services", true},
		{"ServiceAccount", "serviceaccounts", true}, {"Secret", "secrets", true}, {"ConfigMap", "configmaps", true},
		{"Event", "events", true}, {"PersistentVolumeClaim", "persistentvolumeclaims", true},
		{"ResourceQuota", "resourcequotas", true},
	}},
	{apps.SchemeGroupVersion, apps.AddToScheme, []kind{{"DaemonSet", "daemonsets", true}, {"Deployment", "deployments", true}}},
	{batch.SchemeGroupVersion, batch.AddToScheme, []kind{{"Job", "jobs", true}, {"CronJob", "cronjobs", true}}},
	{coordination.SchemeGroupVersion, coordination.AddToScheme, []kind{{"Lease", "leases", true}}},
	{discovery.SchemeGroupVersion, discovery.AddToScheme, []kind{{"EndpointSlice", "endpointslices", true}}},
	{events.SchemeGroupVersion, events.AddToScheme, []kind{{"Event", "events", true}}},
	{policy.SchemeGroupVersion, policy.AddToScheme, []kind{{"PodDisruptionBudget", "poddisruptionbudgets", true}}},
	{rbac.SchemeGroupVersion, rbac.AddToScheme, []kind{
		{"ClusterRole", "clusterroles", false}, {"ClusterRoleBinding", "clusterrolebindings", false},
		{"Role", "roles", true}, {"RoleBinding", "rolebindings", true},
	}},
	{scheduling.SchemeGroupVersion, scheduling.AddToScheme, []kind{{"PriorityClass", "priorityclasses", false}}},
	{admissionregistration.SchemeGroupVersion, admissionregistration.AddToScheme, []kind{
		{"MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false},
		{"ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false},
		{"ValidatingAdmissionPolicy", "validatingadmissionpolicies", false},
		{"ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false},
	}},
}

var (
	scheme = newScheme()
	codecs = serializer.NewCodecFactory(scheme)
)

// newScheme registers each group's types twice: a generic API server works on internal versions, and here they are the same types.
func newScheme() *runtime.Scheme {
	made := runtime.NewScheme()
	for _, one := range groups {
		utilruntime.Must(one.add(made))
		internal := schema.GroupVersion{Group: one.version.Group, Version: runtime.APIVersionInternal}
		for name, of := range made.KnownTypes(one.version) {
			if strings.HasPrefix(of.PkgPath(), "k8s.io/api/") {
				made.AddKnownTypeWithName(internal.WithKind(name), reflect.New(of).Interface().(runtime.Object))
			}
		}
		utilruntime.Must(made.SetVersionPriority(one.version))
	}
	addDefaults(made)
	return made
}

func versions() []schema.GroupVersion {
	var found []schema.GroupVersion
	for _, one := range groups {
		found = append(found, one.version)
	}
	return found
}
