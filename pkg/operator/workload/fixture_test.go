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
	patience   = time.Minute
)

// room is a manager with a workload cluster and a controller that notes of what it
// was told.
type room struct {
	plane   *planetest.Plane
	ns      string
	cluster *workload.Cluster
	mu      sync.Mutex
	told    map[string]int
}

// newRoom starts a manager; external: its workload cluster is where a Secret points.
func newRoom(t *testing.T, external bool, watched client.Object) *room {
	t.Helper()
	r := &room{plane: shared.Plane(t), told: map[string]int{}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "workload-"}}
	r.must(t, r.plane.Client.Create(t.Context(), ns))
	r.ns = ns.Name
	options := r.plane.ManagerOptions(r.ns)
	options.Cache.ByObject = workload.Cache()
	mgr, err := ctrl.NewManager(r.plane.Config, options)
	r.must(t, err)
	if external {
		r.cluster, err = workload.External(mgr, client.ObjectKey{Namespace: r.ns, Name: secretName})
	} else {
		r.cluster, err = workload.Local(t.Context(), mgr)
	}
	r.must(t, err)
	r.follow(t, mgr, watched)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	return r
}

func (r *room) follow(t *testing.T, mgr ctrl.Manager, watched client.Object) {
	t.Helper()
	notes := reconcile.Func(func(_ context.Context, q reconcile.Request) (reconcile.Result, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told[q.Name]++
		return reconcile.Result{}, nil
	})
	c, err := controller.New("notes", mgr, controller.Options{Reconciler: notes})
	r.must(t, err)
	named := func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
	}
	r.must(t, c.Watch(r.cluster.Source(watched, named)))
}

func (r *room) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *room) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[name]
}

// node makes a Node with its name as its provider id.
func (r *room) node(t *testing.T, suffix string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.ns + "-" + suffix}}
	n.Spec.ProviderID = id(n.Name)
	r.must(t, r.plane.Client.Create(t.Context(), n))
	return n
}

func id(name string) string { return "fake:///" + name }

// secret writes the kubeconfig's Secret, anew if it is there.
func (r *room) secret(t *testing.T, kubeconfig []byte) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: secretName}}
	err := r.plane.Client.Get(t.Context(), client.ObjectKeyFromObject(s), s)
	s.Data = map[string][]byte{"value": kubeconfig}
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	} else if err != nil {
		r.must(t, r.plane.Client.Create(t.Context(), s))
		return
	}
	r.must(t, r.plane.Client.Update(t.Context(), s))
}

// finds waits until a Node is found by its provider id.
func (r *room) finds(t *testing.T, n *corev1.Node) {
	t.Helper()
	eventually(t, "the node is found", func() bool {
		found, err := r.cluster.NodeByProviderID(t.Context(), n.Spec.ProviderID)
		return err == nil && found != nil && found.Name == n.Name
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("not within %s: %s", patience, what)
}

// kubeconfig leads to where a config does.
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

// detour is a second way to an API server, which cut ends for good.
func detour(t *testing.T, c *rest.Config) (by *rest.Config, cut func()) {
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
