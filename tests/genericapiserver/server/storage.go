package main

import (
	"context"
	"reflect"
	"strings"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/names"
)

// install serves all kinds, each with its status where it has one.
func install(to *server.GenericAPIServer, options generic.RESTOptionsGetter) error {
	stores := map[string]*registry.Store{}
	for _, one := range groups {
		info := server.NewDefaultAPIGroupInfo(one.version.Group, scheme, runtime.NewParameterCodec(scheme), codecs)
		served := map[string]rest.Storage{}
		for _, kind := range one.kinds {
			store, err := serve(served, one, kind, options)
			if err != nil {
				return err
			}
			stores[kind.resource] = store
			if kind.name == "Pod" {
				served["pods/binding"], served["pods/eviction"] = &binding{store}, &eviction{stores}
			}
		}
		info.VersionedResourcesStorageMap[one.version.Version] = served
		if one.version.Group == "" {
			if err := to.InstallLegacyAPIGroup(server.DefaultLegacyAPIPrefix, &info); err != nil {
				return err
			}
		} else if err := to.InstallAPIGroup(&info); err != nil {
			return err
		}
	}
	return nil
}

func serve(served map[string]rest.Storage, of group, kind kind, options generic.RESTOptionsGetter) (*registry.Store, error) {
	plain := strategy{scheme, names.SimpleNameGenerator, kind.namespaced}
	var with rules = plain
	if kind.name == "Pod" {
		with = podStrategy{plain}
	}
	resource := of.version.WithResource(kind.resource).GroupResource()
	store := &registry.Store{
		NewFunc:                   func() runtime.Object { return made(of, kind.name) },
		NewListFunc:               func() runtime.Object { return made(of, kind.name+"List") },
		DefaultQualifiedResource:  resource,
		SingularQualifiedResource: of.version.WithResource(strings.ToLower(kind.name)).GroupResource(),
		CreateStrategy:            with,
		UpdateStrategy:            with,
		DeleteStrategy:            with,
		TableConvertor:            rest.NewDefaultTableConvertor(resource),
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options}); err != nil {
		return nil, err
	}
	served[kind.resource] = store
	if part(made(of, kind.name), "Status").IsValid() {
		ofStatus := *store
		ofStatus.UpdateStrategy = statusStrategy{plain}
		served[kind.resource+"/status"] = &status{&ofStatus}
	}
	return store, nil
}

func made(of group, kind string) runtime.Object {
	one, err := scheme.New(of.version.WithKind(kind))
	utilruntime.Must(err)
	return one
}

type rules interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// strategy lets everybody do everything, but keeps what is specified and what is observed apart.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	namespaced bool
}

func (s strategy) NamespaceScoped() bool        { return s.namespaced }
func (strategy) AllowCreateOnUpdate() bool      { return false }
func (strategy) AllowUnconditionalUpdate() bool { return true }
func (strategy) Canonicalize(runtime.Object)    {}
func (strategy) PrepareForCreate(_ context.Context, made runtime.Object) {
	if _, ok := made.(*core.Node); !ok { // a kubelet creates its Node with its status (k8s.io/kubernetes/pkg/registry/core/node/strategy.go)
		empty(made, "Status")
	}
}
func (strategy) PrepareForUpdate(_ context.Context, made, old runtime.Object) {
	keep(made, old, "Status")
}
func (strategy) Validate(context.Context, runtime.Object) field.ErrorList { return nil }
func (strategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}
func (strategy) WarningsOnCreate(_ context.Context, made runtime.Object) []string {
	return warnings(made)
}
func (strategy) WarningsOnUpdate(_ context.Context, made, _ runtime.Object) []string {
	return warnings(made)
}

type statusStrategy struct{ strategy }

func (statusStrategy) PrepareForUpdate(_ context.Context, made, old runtime.Object) {
	keep(made, old, "Spec")
}

// status is the subresource: it can be read and updated, no more.
type status struct{ store *registry.Store }

func (s *status) New() runtime.Object { return s.store.New() }
func (s *status) Destroy()            {}
func (s *status) Get(ctx context.Context, name string, options *meta.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

func (s *status) Update(ctx context.Context, name string, made rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *meta.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, made, create, update, false, options)
}

func part(of runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(of).Elem().FieldByName(name)
}

func empty(made runtime.Object, name string) {
	if found := part(made, name); found.IsValid() {
		found.SetZero()
	}
}

func keep(made, old runtime.Object, name string) {
	if found := part(made, name); found.IsValid() {
		found.Set(part(old, name))
	}
}
