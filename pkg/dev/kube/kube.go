// Package kube prepares an API server for nstance-operator: Cluster API's kinds and webhooks, the
// project's own kinds, and the objects that the operator expects.
package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Namespace is the operator's namespace.
const Namespace = "nstance"

// installTimeout bounds the wait until kinds are served.
const installTimeout = time.Minute

// fieldOwner owns the fields that are applied here.
const fieldOwner = client.FieldOwner("nstance-dev")

// Config configures Install.
type Config struct {
	Kubeconfig string // an administrator's
	Manifests  string // the repository's folder config
	// ClusterAPI is the folder of Cluster API's CRDs and webhooks; empty: they are installed
	// already.
	ClusterAPI string
	// Webhooks is the loopback port at which Cluster API will serve its webhooks, and Certificates
	// the folder from which it reads their certificate.
	Webhooks     int
	Certificates string
	CA           []byte // the certificates of the Nstance cluster's CAs
	// Nonce returns a registration nonce. It is called unless the operator has a certificate.
	Nonce func(context.Context) ([]byte, error)
}

// Install installs everything, or updates it.
func Install(ctx context.Context, c Config) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	api, err := connect(config)
	if err != nil {
		return err
	}
	if err := c.installKinds(config); err != nil {
		return fmt.Errorf("install the kinds: %w", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if err := api.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := c.applyRoles(ctx, api); err != nil {
		return err
	}
	return c.prepareIdentity(ctx, api)
}

func connect(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// kindLabels are the labels that config/crd puts on the project's kinds. Without them, a cluster
// that has them already would lose them.
func kindLabels() map[string]string {
	return map[string]string{"cluster.x-k8s.io/provider": "infrastructure-nstance", "clusterctl.cluster.x-k8s.io": ""}
}

// installKinds installs all CRDs, and the webhooks of Cluster API's.
func (c Config) installKinds(config *rest.Config) error {
	crds := envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(c.Manifests, "crd", "bases")}, MaxTime: installTimeout, ErrorIfPathMissing: true,
	}
	if err := envtest.ReadCRDFiles(&crds); err != nil {
		return err
	}
	for _, kind := range crds.CRDs {
		if kind.Labels == nil {
			kind.Labels = map[string]string{}
		}
		maps.Copy(kind.Labels, kindLabels())
	}
	crds.Paths = nil
	if c.ClusterAPI == "" {
		_, err := envtest.InstallCRDs(config, crds)
		return err
	}
	hooks := envtest.WebhookInstallOptions{
		Paths: []string{filepath.Join(c.ClusterAPI, "webhooks.yaml")}, LocalServingHost: "127.0.0.1", LocalServingPort: c.Webhooks,
		IgnoreSchemeConvertible: true, MaxTime: installTimeout,
	}
	if err := hooks.PrepWithoutInstalling(); err != nil {
		return err
	}
	defer os.RemoveAll(hooks.LocalServingCertDir)
	if err := copyKeyPair(hooks.LocalServingCertDir, c.Certificates); err != nil {
		return err
	}
	crds.Paths = []string{filepath.Join(c.ClusterAPI, "crds")}
	crds.WebhookOptions = hooks
	if _, err := envtest.InstallCRDs(config, crds); err != nil {
		return err
	}
	return hooks.Install(config)
}

// copyKeyPair copies the webhooks' certificate and key.
func copyKeyPair(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		body, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), body, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// applyRoles applies the roles that Cluster API needs for nodes.
func (c Config) applyRoles(ctx context.Context, api client.Client) error {
	text, err := os.ReadFile(filepath.Join(c.Manifests, "rbac", "workload.yaml"))
	if err != nil {
		return err
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := documents.Decode(o)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := apply(ctx, api, o); err != nil {
			return err
		}
	}
}

// prepareIdentity stores what the operator needs to register.
func (c Config) prepareIdentity(ctx context.Context, api client.Client) error {
	if err := apply(ctx, api, object("ConfigMap", "nstance-cluster-ca", "data", map[string]any{"ca.crt": string(c.CA)})); err != nil {
		return err
	}
	err := api.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "nstance-operator-cert"}, &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	nonce, err := c.Nonce(ctx)
	if err != nil {
		return err
	}
	data := map[string]any{"nonce.jwt": string(bytes.TrimSpace(nonce))}
	return apply(ctx, api, object("Secret", "nstance-operator-nonce", "stringData", data))
}

func object(kind, name, field string, data map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"namespace": Namespace, "name": name}, field: data,
	}}
}

func apply(ctx context.Context, api client.Client, o *unstructured.Unstructured) error {
	err := api.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), fieldOwner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// Cluster reads from an API server.
type Cluster struct{ api client.Client }

// Open connects to the API server of a kubeconfig.
func Open(kubeconfig string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	api, err := connect(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{api}, nil
}

// ReadyNodes counts the nodes that are ready.
func (c *Cluster) ReadyNodes(ctx context.Context) (ready int, err error) {
	var all corev1.NodeList
	if err := c.api.List(ctx, &all); err != nil {
		return 0, err
	}
	for i := range all.Items {
		for _, c := range all.Items[i].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	return ready, nil
}

// Pools returns the names of Cluster API's MachinePools in the operator's namespace.
func (c *Cluster) Pools(ctx context.Context) (names []string, err error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachinePoolList"})
	if err := c.api.List(ctx, all, client.InNamespace(Namespace)); err != nil {
		return nil, err
	}
	for i := range all.Items {
		names = append(names, all.Items[i].GetName())
	}
	return names, nil
}
