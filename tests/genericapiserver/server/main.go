// Command apiserver serves the kinds of Railnet's manifests by Kubernetes' own generic API server (k8s.io/apiserver), for tests.
//
// Of Kubernetes itself are requests, storage, OpenAPI, strict decoding, server-side apply, service accounts' users, and admission:
// ValidatingAdmissionPolicies and webhooks, with their CEL and its cost. What kube-apiserver adds is not here: validation of objects,
// RBAC (everything is allowed), tokens. Those of its defaults that admission goes by are in defaults.go; of its own admission plugins
// only Priority is here, written for this server in priority.go; of its rules for objects, those for pods with scheduling gates (pods.go)
// and two of a pod's subresources (podrequests.go).
package main

import (
	"flag"
	"fmt"
	"net"
	"slices"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"go.opentelemetry.io/otel/trace/noop"

	"railnet/definitions"
)

type settings struct {
	etcd, certificates string
	port               int
}

func main() {
	var given settings
	flag.StringVar(&given.etcd, "etcd", "", "where etcd answers")
	flag.StringVar(&given.certificates, "certificates", "", "folder of the serving certificate, apiserver.crt, which is made")
	flag.IntVar(&given.port, "port", 0, "to serve on, at 127.0.0.1")
	flag.Parse()
	if err := run(given); err != nil {
		klog.Fatal(err)
	}
}

func run(given settings) error {
	config, err := configure(given)
	if err != nil {
		return err
	}
	generic, err := config.Complete().New("railnet-test", server.NewEmptyDelegate())
	if err != nil {
		return err
	}
	if err := install(generic, config.RESTOptionsGetter); err != nil {
		return err
	}
	return generic.PrepareRun().RunWithContext(server.SetupSignalContext())
}

func configure(given settings) (*server.RecommendedConfig, error) {
	config := server.NewRecommendedConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.FeatureGate = feature.DefaultFeatureGate
	namer := openapi.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = server.DefaultOpenAPIConfig(definitions.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config = server.DefaultOpenAPIV3Config(definitions.GetOpenAPIDefinitions, namer)

	storage := options.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", codecs.LegacyCodec(versions()...)))
	storage.StorageConfig.Transport.ServerList = []string{given.etcd}
	if err := storage.ApplyTo(&config.Config); err != nil {
		return nil, err
	}
	serving := options.NewSecureServingOptions().WithLoopback()
	serving.BindAddress, serving.BindPort = net.IPv4(127, 0, 0, 1), given.port
	serving.ServerCert.CertDirectory, serving.ServerCert.PairName = given.certificates, "apiserver"
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{serving.BindAddress}); err != nil {
		return nil, err
	}
	if err := serving.ApplyToConfig(&config.Config); err != nil {
		return nil, err
	}
	config.ExternalAddress = fmt.Sprintf("127.0.0.1:%d", given.port)
	config.Authentication.Authenticator = newAuthenticator()
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	return config, admit(config)
}

// admit gives the server its admission plugins: all that the library has but MutatingAdmissionPolicy, which nothing here uses, and Priority.
func admit(config *server.RecommendedConfig) error {
	config.ClientConfig = config.LoopbackClientConfig
	client, err := kubernetes.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return err
	}
	dynamicClient, err := dynamic.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return err
	}
	config.SharedInformerFactory = informers.NewSharedInformerFactory(client, 0)
	services, err := newServices(config.SharedInformerFactory)
	if err != nil {
		return err
	}
	callers := webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, config.LoopbackClientConfig, noop.NewTracerProvider())
	webhooks := initializer.NewPluginInitializer(callers, services)
	plugins := options.NewAdmissionOptions()
	plugins.Plugins.Register(priorityPlugin, newPriority)
	plugins.RecommendedPluginOrder = slices.Insert(plugins.RecommendedPluginOrder, 0, priorityPlugin) // before webhooks, as in kube-apiserver
	plugins.DisablePlugins = []string{mutating.PluginName}
	return plugins.ApplyTo(&config.Config, config.SharedInformerFactory, client, dynamicClient, feature.DefaultFeatureGate,
		config.EffectiveVersion, admission.PluginInitializers{webhooks}...)
}
