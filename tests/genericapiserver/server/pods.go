package main

import (
	"context"
	"fmt"
	"reflect"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podStrategy has the rules of kube-apiserver for pods with scheduling gates. No package of Debian has the source of k8s.io/kubernetes, so all
// of this file is modelled, on the functions of Kubernetes 1.36 that the comments name. The words of the refusals are Kubernetes'.
//
// Stricter than Kubernetes: tolerations and deadlines of a pod cannot be changed here either.
// Left out: defaults, and the validation of everything else.
type podStrategy struct{ strategy }

// PrepareForCreate: pkg/registry/core/pod/strategy.go, PrepareForCreate and applySchedulingGatedCondition.
func (s podStrategy) PrepareForCreate(ctx context.Context, made runtime.Object) {
	s.strategy.PrepareForCreate(ctx, made)
	pod := made.(*core.Pod)
	pod.Status.Phase = core.PodPending
	if len(pod.Spec.SchedulingGates) > 0 {
		pod.Status.Conditions = []core.PodCondition{{
			Type: core.PodScheduled, Status: core.ConditionFalse, Reason: core.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		}}
	}
}

// Validate: pkg/apis/core/validation/validation.go, ValidatePodSpec.
func (podStrategy) Validate(_ context.Context, made runtime.Object) field.ErrorList {
	if spec := made.(*core.Pod).Spec; spec.NodeName != "" && len(spec.SchedulingGates) > 0 {
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "nodeName"), "cannot be set until all schedulingGates have been cleared")}
	}
	return nil
}

// ValidateUpdate: pkg/apis/core/validation/validation.go, ValidatePodUpdate.
func (podStrategy) ValidateUpdate(_ context.Context, made, old runtime.Object) field.ErrorList {
	path := field.NewPath("spec")
	spec, before := made.(*core.Pod).Spec.DeepCopy(), &old.(*core.Pod).Spec
	found := onlyDeletedGates(path.Child("schedulingGates"), spec, before)
	spec.SchedulingGates = before.SchedulingGates
	keepImages(spec.Containers, before.Containers)
	keepImages(spec.InitContainers, before.InitContainers)
	if len(before.SchedulingGates) > 0 {
		found = append(found, onlyAddedSelectors(path.Child("nodeSelector"), spec, before)...)
		spec.NodeSelector = before.NodeSelector
		found = append(found, onlyNarrowedAffinity(path.Child("affinity", "nodeAffinity"), spec, before)...)
		spec.Affinity = withNodeAffinity(spec.Affinity, before.Affinity)
	}
	if !equality.Semantic.DeepEqual(spec, before) {
		found = append(found, field.Forbidden(path, "pod updates may not change fields other than images and `spec.schedulingGates` (only deletions), "+
			"and of gated pods `spec.nodeSelector` and `spec.affinity.nodeAffinity` (only additions)"))
	}
	return found
}

// keepImages sets images as they were: they may be changed, so that they are not compared.
func keepImages(of, before []core.Container) {
	for i := range of[:min(len(of), len(before))] {
		of[i].Image = before[i].Image
	}
}

// onlyDeletedGates: validateOnlyDeletedSchedulingGates.
func onlyDeletedGates(at *field.Path, spec, before *core.PodSpec) (found field.ErrorList) {
	had := map[string]bool{}
	for _, gate := range before.SchedulingGates {
		had[gate.Name] = true
	}
	for i, gate := range spec.SchedulingGates {
		if !had[gate.Name] {
			found = append(found, field.Forbidden(at.Index(i).Child("name"), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}
	return found
}

// onlyAddedSelectors: validateNodeSelectorMutation.
func onlyAddedSelectors(at *field.Path, spec, before *core.PodSpec) field.ErrorList {
	for key, value := range before.NodeSelector {
		if has, ok := spec.NodeSelector[key]; !ok || has != value {
			return field.ErrorList{field.Invalid(at, spec.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)")}
		}
	}
	return nil
}

// onlyNarrowedAffinity: validateNodeAffinityMutation. Where no term was required, any may be; a term that was there may get expressions.
func onlyNarrowedAffinity(at *field.Path, spec, before *core.PodSpec) (found field.ErrorList) {
	at = at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	terms, old := requiredTerms(spec.Affinity), requiredTerms(before.Affinity)
	if len(old) > 0 && len(old) != len(terms) {
		return field.ErrorList{field.Invalid(at, terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	for i, term := range old {
		isEmpty := len(term.MatchExpressions)+len(term.MatchFields) == 0
		if isEmpty && !reflect.DeepEqual(terms[i], term) ||
			!begins(terms[i].MatchExpressions, term.MatchExpressions) || !begins(terms[i].MatchFields, term.MatchFields) {
			found = append(found, field.Invalid(at.Index(i), terms[i], "only additions are allowed (no mutations or deletions)"))
		}
	}
	return found
}

func begins(with, first []core.NodeSelectorRequirement) bool {
	return len(with) >= len(first) && (len(first) == 0 || reflect.DeepEqual(with[:len(first)], first))
}

func requiredTerms(of *core.Affinity) []core.NodeSelectorTerm {
	if of == nil || of.NodeAffinity == nil || of.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return of.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// withNodeAffinity returns an affinity with the node affinity from before, so that only the rest is compared with what was before.
func withNodeAffinity(affinity, before *core.Affinity) *core.Affinity {
	made := core.Affinity{}
	if affinity != nil {
		made = *affinity
	}
	made.NodeAffinity = nil
	if before != nil {
		made.NodeAffinity = before.NodeAffinity
	} else if made == (core.Affinity{}) {
		return nil
	}
	return &made
}

// CheckGracefulDelete: pkg/registry/core/pod/strategy.go. A pod that is on a node is deleted by its kubelet when its time is over. kube-apiserver
// gives each pod 30 s; here a pod without terminationGracePeriodSeconds goes at once, since most tests have no kubelet.
func (podStrategy) CheckGracefulDelete(_ context.Context, deleted runtime.Object, options *meta.DeleteOptions) bool {
	pod, period := deleted.(*core.Pod), int64(0)
	if given := options.GracePeriodSeconds; given != nil {
		period = *given
	} else if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		period = *own
	}
	if ended := pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed; ended || pod.Spec.NodeName == "" {
		period = 0
	}
	options.GracePeriodSeconds = &period
	return true
}

// setCondition: pkg/api/v1/pod/util.go, UpdatePodCondition.
func setCondition(pod *core.Pod, made core.PodCondition) {
	made.LastTransitionTime = meta.Now()
	for i, one := range pod.Status.Conditions {
		if one.Type == made.Type {
			pod.Status.Conditions[i] = made
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, made)
}
