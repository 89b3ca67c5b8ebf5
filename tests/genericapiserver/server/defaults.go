package main

import (
	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// addDefaults registers the defaults that admission goes by, as the fields' comments in k8s.io/api say them.
func addDefaults(to *runtime.Scheme) {
	to.AddTypeDefaultingFunc(&core.Namespace{}, func(made any) { defaultNamespace(made.(*core.Namespace)) })
	to.AddTypeDefaultingFunc(&core.Service{}, func(made any) { set(&made.(*core.Service).Spec.Type, core.ServiceTypeClusterIP) })
	to.AddTypeDefaultingFunc(&admissionregistration.MutatingWebhookConfiguration{}, func(made any) {
		for i := range made.(*admissionregistration.MutatingWebhookConfiguration).Webhooks {
			defaultWebhook(&made.(*admissionregistration.MutatingWebhookConfiguration).Webhooks[i])
		}
	})
	to.AddTypeDefaultingFunc(&admissionregistration.ValidatingAdmissionPolicy{}, func(made any) {
		spec := &made.(*admissionregistration.ValidatingAdmissionPolicy).Spec
		point(&spec.FailurePolicy, admissionregistration.Fail)
		if spec.MatchConstraints != nil {
			defaultMatch(spec.MatchConstraints)
		}
	})
	to.AddTypeDefaultingFunc(&admissionregistration.ValidatingAdmissionPolicyBinding{}, func(made any) {
		if match := made.(*admissionregistration.ValidatingAdmissionPolicyBinding).Spec.MatchResources; match != nil {
			defaultMatch(match)
		}
	})
}

// defaultNamespace labels a namespace with its name (core.LabelMetadataName).
func defaultNamespace(made *core.Namespace) {
	if made.Name == "" {
		return
	}
	if made.Labels == nil {
		made.Labels = map[string]string{}
	}
	made.Labels[core.LabelMetadataName] = made.Name
}

func defaultWebhook(made *admissionregistration.MutatingWebhook) {
	point(&made.FailurePolicy, admissionregistration.Fail)
	point(&made.MatchPolicy, admissionregistration.Equivalent)
	point(&made.NamespaceSelector, meta.LabelSelector{})
	point(&made.ObjectSelector, meta.LabelSelector{})
	point(&made.TimeoutSeconds, 10)
	point(&made.ReinvocationPolicy, admissionregistration.NeverReinvocationPolicy)
	if made.ClientConfig.Service != nil {
		point(&made.ClientConfig.Service.Port, 443)
	}
	for i := range made.Rules {
		point(&made.Rules[i].Scope, admissionregistration.AllScopes)
	}
}

func defaultMatch(made *admissionregistration.MatchResources) {
	point(&made.MatchPolicy, admissionregistration.Equivalent)
	point(&made.NamespaceSelector, meta.LabelSelector{})
	point(&made.ObjectSelector, meta.LabelSelector{})
	for _, rules := range [][]admissionregistration.NamedRuleWithOperations{made.ResourceRules, made.ExcludeResourceRules} {
		for i := range rules {
			point(&rules[i].Scope, admissionregistration.AllScopes)
		}
	}
}

func point[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
