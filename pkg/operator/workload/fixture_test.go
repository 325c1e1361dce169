package workload_test

import (
	"context"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/workload"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

const (
	secretName = "c--t-kubeconfig"
	timeout    = planetest.Patience
)

// fixture is a manager with a workload cluster and a controller that counts events by the names
// of their objects.
type fixture struct {
	plane   *planetest.Plane
	ns      string
	cluster *workload.Cluster
	mu      sync.Mutex
	events  map[string]int
}

// newFixture starts a manager whose workload cluster is external, with the kubeconfig in a
// Secret, or the manager's own.
func newFixture(t *testing.T, external bool, watched client.Object) *fixture {
	t.Helper()
	f := &fixture{plane: shared.Plane(t), events: map[string]int{}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "workload-"}}
	f.must(t, f.plane.Client.Create(t.Context(), ns))
	f.ns = ns.Name
	options := f.plane.ManagerOptions(f.ns)
	options.Cache.ByObject = workload.Cache()
	mgr, err := ctrl.NewManager(f.plane.Config, options)
	f.must(t, err)
	if external {
		f.cluster, err = workload.External(mgr, client.ObjectKey{Namespace: f.ns, Name: secretName})
	} else {
		f.cluster, err = workload.Local(t.Context(), mgr)
	}
	f.must(t, err)
	f.recordEvents(t, mgr, watched)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	return f
}

func (f *fixture) recordEvents(t *testing.T, mgr ctrl.Manager, watched client.Object) {
	t.Helper()
	record := reconcile.Func(func(_ context.Context, q reconcile.Request) (reconcile.Result, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events[q.Name]++
		return reconcile.Result{}, nil
	})
	c, err := controller.New("events", mgr, controller.Options{Reconciler: record})
	f.must(t, err)
	named := func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	}
	f.must(t, c.Watch(f.cluster.Source(watched, named)))
}

func (f *fixture) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events[name]
}

// node creates a Node with its name as its provider ID.
func (f *fixture) node(t *testing.T, suffix string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.ns + "-" + suffix}}
	n.Spec.ProviderID = id(n.Name)
	f.must(t, f.plane.Client.Create(t.Context(), n))
	return n
}

func id(name string) string { return "fake:///" + name }

// secret creates or updates the Secret with the kubeconfig.
func (f *fixture) secret(t *testing.T, kubeconfig []byte) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: secretName}}
	err := f.plane.Client.Get(t.Context(), client.ObjectKeyFromObject(s), s)
	s.Data = map[string][]byte{"value": kubeconfig}
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	} else if err != nil {
		f.must(t, f.plane.Client.Create(t.Context(), s))
		return
	}
	f.must(t, f.plane.Client.Update(t.Context(), s))
}

// awaitNode waits until a Node is found by its provider ID.
func (f *fixture) awaitNode(t *testing.T, n *corev1.Node) {
	t.Helper()
	eventually(t, "the node is found", func() bool {
		found, err := f.cluster.NodeOf(t.Context(), workload.Identity{ProviderID: n.Spec.ProviderID})
		return err == nil && found != nil && found.Name == n.Name
	})
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not within %s: %s", timeout, what)
}

// kubeconfig returns a kubeconfig for a REST config, with its certificates.
func kubeconfig(t *testing.T, c *rest.Config, name string) []byte {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	written, err := clientcmd.Write(*k)
	if err != nil {
		t.Fatal(err)
	}
	return written
}

// proxied starts a proxy in front of an API server, which cut stops for good.
func proxied(t *testing.T, c *rest.Config) (by *rest.Config, cut func()) {
	t.Helper()
	transport, err := rest.TransportFor(c)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(c.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      nil,
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}, func() {
		s.Listener.Close()
		s.CloseClientConnections()
	}
}
