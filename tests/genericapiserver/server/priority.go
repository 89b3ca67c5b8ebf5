package main

import (
	"context"
	"fmt"
	"io"

	core "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/scheduling/v1"
)

const priorityPlugin = "Priority"

// priority sets a new pod's priority by its class as kube-apiserver's plugin of that name does, which takes internal types only
// (k8s.io/kubernetes/plugin/pkg/admission/priority). Its rule for a second pass, after a webhook, is the same: a priority or a preemption
// policy that the pod has already must be that of its class.
type priority struct {
	*admission.Handler
	classes listers.PriorityClassLister
}

func newPriority(io.Reader) (admission.Interface, error) {
	return &priority{Handler: admission.NewHandler(admission.Create)}, nil
}

var _ initializer.WantsExternalKubeInformerFactory = &priority{} // the library asks for this interface, and is silent where it is missing

func (p *priority) SetExternalKubeInformerFactory(factory informers.SharedInformerFactory) {
	p.classes = factory.Scheduling().V1().PriorityClasses().Lister()
}

func (p *priority) ValidateInitialization() error {
	if p.classes == nil {
		return fmt.Errorf("plugin %s has no lister of PriorityClasses", priorityPlugin)
	}
	return nil
}

func (p *priority) Admit(_ context.Context, of admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := of.GetObject().(*core.Pod)
	if !ok || of.GetSubresource() != "" {
		return nil
	}
	class, err := p.class(pod.Spec.PriorityClassName)
	if errors.IsNotFound(err) {
		return admission.NewForbidden(of, fmt.Errorf("no PriorityClass with name %v was found", pod.Spec.PriorityClassName))
	}
	if err != nil {
		return err
	}
	if has := pod.Spec.Priority; has != nil && *has != class.Value {
		return admission.NewForbidden(of, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; "+
			"priority admission controller computed %d from the given PriorityClass name", *has, class.Value))
	}
	if has := pod.Spec.PreemptionPolicy; has != nil && class.PreemptionPolicy != nil && *has != *class.PreemptionPolicy {
		return admission.NewForbidden(of, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
			"priority admission controller computed %s from the given PriorityClass name", *has, *class.PreemptionPolicy))
	}
	pod.Spec.PriorityClassName, pod.Spec.Priority = class.Name, &class.Value
	if class.PreemptionPolicy != nil {
		pod.Spec.PreemptionPolicy = class.PreemptionPolicy
	}
	return nil
}

// class returns a copy of the named class; without a name, of the global default; without such a default, a class without a name.
func (p *priority) class(name string) (*scheduling.PriorityClass, error) {
	if name != "" {
		found, err := p.classes.Get(name)
		return found.DeepCopy(), err
	}
	all, err := p.classes.List(labels.Everything())
	lower := core.PreemptLowerPriority
	found := &scheduling.PriorityClass{PreemptionPolicy: &lower}
	for _, one := range all {
		if one.GlobalDefault {
			found = one.DeepCopy()
		}
	}
	return found, err
}
