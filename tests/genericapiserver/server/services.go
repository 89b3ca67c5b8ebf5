package main

import (
	"net/url"

	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
)

// services finds where a webhook's Service answers by its EndpointSlice, as kube-apiserver does with --enable-aggregator-routing:
// nothing here forwards what is sent to a cluster address.
type services struct {
	services listers.ServiceLister
	slices   proxy.EndpointSliceGetter
}

func newServices(factory informers.SharedInformerFactory) (*services, error) {
	slices, err := proxy.NewEndpointSliceListerGetter(factory.Discovery().V1().EndpointSlices().Lister())
	return &services{factory.Core().V1().Services().Lister(), slices}, err
}

func (s *services) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return proxy.ResolveEndpoint(s.services, s.slices, namespace, name, port)
}
