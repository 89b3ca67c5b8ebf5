package main

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storageerrors "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"
)

const budgets = "poddisruptionbudgets"

// binding is the subresource by which a scheduler gives a pod its node. Modelled on pkg/registry/core/pod/storage/storage.go of Kubernetes
// 1.36: BindingREST, setPodNodeAndMetadata.
type binding struct{ pods *registry.Store }

func (b *binding) New() runtime.Object { return &core.Binding{} }
func (b *binding) Destroy()            {}
func (b *binding) Create(ctx context.Context, name string, made runtime.Object, validate rest.ValidateObjectFunc, options *meta.CreateOptions,
) (runtime.Object, error) {
	node := made.(*core.Binding).Target.Name
	if node == "" {
		return nil, errors.NewBadRequest("target.name: Required value")
	}
	if err := validate(ctx, made.DeepCopyObject()); err != nil {
		return nil, err
	}
	err := change(ctx, b.pods, name, dryrun.IsDryRun(options.DryRun), func(pod *core.Pod) error {
		switch {
		case pod.DeletionTimestamp != nil:
			return errors.NewConflict(of(b.pods), name, fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", name))
		case pod.Spec.NodeName != "":
			return errors.NewConflict(of(b.pods), name, fmt.Errorf("pod %v is already assigned to node %q", name, pod.Spec.NodeName))
		case len(pod.Spec.SchedulingGates) != 0:
			return errors.NewConflict(of(b.pods), name, fmt.Errorf("pod %v has non-empty .spec.schedulingGates", name))
		}
		pod.Spec.NodeName = node
		setCondition(pod, core.PodCondition{Type: core.PodScheduled, Status: core.ConditionTrue})
		return nil
	})
	return &meta.Status{Status: meta.StatusSuccess}, err
}

// eviction is the subresource that deletes a pod if its PodDisruptionBudget permits it. Modelled on
// pkg/registry/core/pod/storage/eviction.go of Kubernetes 1.36. No controller keeps a budget's status here: tests write it.
type eviction struct{ stores map[string]*registry.Store }

var _ rest.GroupVersionKindProvider = &eviction{}
var _ rest.GroupVersionAcceptor = &eviction{}

func (e *eviction) New() runtime.Object { return &policy.Eviction{} }
func (e *eviction) Destroy()            {}
func (e *eviction) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return policy.SchemeGroupVersion.WithKind("Eviction")
}
func (e *eviction) AcceptsGroupVersion(version schema.GroupVersion) bool {
	return version == policy.SchemeGroupVersion
}

func (e *eviction) Create(ctx context.Context, name string, made runtime.Object, validate rest.ValidateObjectFunc, options *meta.CreateOptions,
) (runtime.Object, error) {
	given := made.(*policy.Eviction)
	if name != given.Name {
		return nil, errors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if err := validate(ctx, made.DeepCopyObject()); err != nil {
		return nil, err
	}
	deletion := given.DeleteOptions
	if deletion == nil {
		deletion = &meta.DeleteOptions{}
	}
	if len(deletion.DryRun) == 0 {
		deletion.DryRun = options.DryRun
	}
	return e.evict(ctx, name, deletion)
}

func (e *eviction) evict(ctx context.Context, name string, deletion *meta.DeleteOptions) (runtime.Object, error) {
	pods, isDryRun := e.stores["pods"], dryrun.IsDryRun(deletion.DryRun)
	found, err := pods.Get(ctx, name, &meta.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod := found.(*core.Pod)
	if uid := deletion.Preconditions; uid != nil && uid.UID != nil && *uid.UID != pod.UID {
		return nil, errors.NewConflict(of(pods), name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)", *uid.UID, pod.UID))
	}
	if err := e.askBudgets(ctx, pod, isDryRun); err != nil {
		return nil, err
	}
	err = change(ctx, pods, name, isDryRun, func(pod *core.Pod) error {
		setCondition(pod, core.PodCondition{
			Type: core.DisruptionTarget, Status: core.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	_, _, err = pods.Delete(ctx, name, rest.ValidateAllObjectFunc, deletion)
	return &meta.Status{Status: meta.StatusSuccess}, err
}

// askBudgets takes one disruption from the pod's budget. A pod that does not run has none to keep.
func (e *eviction) askBudgets(ctx context.Context, pod *core.Pod, isDryRun bool) error {
	if pod.Status.Phase != core.PodRunning || pod.DeletionTimestamp != nil {
		return nil
	}
	found, err := e.stores[budgets].List(ctx, nil)
	if err != nil {
		return err
	}
	for _, budget := range found.(*policy.PodDisruptionBudgetList).Items {
		selector, err := meta.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		return change(ctx, e.stores[budgets], budget.Name, isDryRun, func(budget *policy.PodDisruptionBudget) error {
			if budget.Status.DisruptionsAllowed < 1 {
				return errors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
			}
			budget.Status.DisruptionsAllowed--
			return nil
		})
	}
	return nil
}

// change writes a changed object, without the rules of an update.
func change[T runtime.Object](ctx context.Context, store *registry.Store, name string, isDryRun bool, by func(T) error) error {
	key, err := store.KeyFunc(ctx, name)
	if err != nil {
		return err
	}
	err = store.Storage.GuaranteedUpdate(ctx, key, store.NewFunc(), false, nil, storage.SimpleUpdate(func(found runtime.Object) (runtime.Object, error) {
		return found, by(found.(T))
	}), isDryRun, nil)
	return storageerrors.InterpretUpdateError(storageerrors.InterpretGetError(err, of(store), name), of(store), name)
}

func of(store *registry.Store) schema.GroupResource { return store.DefaultQualifiedResource }
