package main

import (
	"fmt"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"

	"railnet/definitions"
)

// warnings returns what the type checker finds wrong with a policy. In a cluster a controller writes it only into the policy's status
// (k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus); here the client that applies the policy gets it as warnings.
func warnings(made runtime.Object) []string {
	policy, ok := made.(*admissionregistration.ValidatingAdmissionPolicy)
	if !ok {
		return nil
	}
	var found []string
	for _, one := range checker.Check(policy) {
		for line := range strings.Lines(one.Warning) { // a header has one line
			if strings.Contains(line, "ERROR: ") {
				found = append(found, fmt.Sprintf("%s: %s", one.FieldRef, strings.TrimSpace(line)))
			}
		}
	}
	return found
}

var checker = &validating.TypeChecker{
	SchemaResolver: resolver.NewDefinitionsSchemaResolver(definitions.GetOpenAPIDefinitions, scheme),
	RestMapper:     newMapper(),
}

func newMapper() meta.RESTMapper {
	made := meta.NewDefaultRESTMapper(versions())
	for _, one := range groups {
		for _, kind := range one.kinds {
			scope := meta.RESTScopeRoot
			if kind.namespaced {
				scope = meta.RESTScopeNamespace
			}
			made.AddSpecific(one.version.WithKind(kind.name), one.version.WithResource(kind.resource), one.version.WithResource(kind.resource), scope)
		}
	}
	return made
}
