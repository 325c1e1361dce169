//go:build !roles

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	kube "github.com/nstance/nstance/pkg/operator"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/operator/registration/registrationtest"
	"github.com/nstance/nstance/pkg/operator/settings"
	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

// The two shards of these rows, and the Cluster that the operator creates.
const (
	kubeOne, kubeTwo = "one", "two"
	kubeCluster      = registrationtest.Name + "--" + registrationtest.Tenant
)

// kubeWorld is a namespace of a real control plane, and shards that execute calls at once, so that
// only the operator's time is measured.
type kubeWorld struct {
	*harness
	plane  *planetest.Plane
	ns     string
	shards *shardstest.World
	file   string
}

func newKubeWorld(h *harness, plane *planetest.Plane) *kubeWorld {
	w := &kubeWorld{harness: h, plane: plane, ns: plane.Namespace(h), shards: shardstest.New(h, nil, kubeOne, kubeTwo)}
	for _, id := range []string{kubeOne, kubeTwo} {
		w.shards.Shard(id).SetTiming(func(t *shardstest.Timing) { t.Drain = 0 })
	}
	register := registrationtest.New(h, w.shards.CA())
	at := map[string]kubeAddrs{}
	for _, id := range []string{kubeOne, kubeTwo} {
		at[id] = kubeAddrs{register.Shard(id).Registration, w.shards.Addr(id)}
	}
	w.furnish(registrationtest.Name, at, register.CAs(), registrationtest.Nonce)
	return w
}

// kubeAddrs are a shard's addresses for an operator.
type kubeAddrs struct{ registration, operator string }

// furnish creates the objects that an operator needs to start.
func (w *kubeWorld) furnish(cluster string, shards map[string]kubeAddrs, ca []byte, nonce string) {
	var text strings.Builder
	fmt.Fprintf(&text, "cluster_id: %s\nshards:\n", cluster)
	for _, id := range slices.Sorted(maps.Keys(shards)) {
		fmt.Fprintf(&text, "  %s: {registration_addr: %q, operator_addr: %q}\n", id, shards[id].registration, shards[id].operator)
	}
	w.file = filepath.Join(w.TempDir(), "config.yaml")
	w.must(os.WriteFile(w.file, []byte(text.String()), 0o600))
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: w.ns, Name: name} }
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta("nstance-cluster-ca"), Data: map[string]string{"ca.crt": string(ca)}},
		&corev1.Secret{ObjectMeta: meta("nstance-operator-nonce"), Data: map[string][]byte{"nonce.jwt": []byte(nonce)}},
		&corev1.ServiceAccount{ObjectMeta: meta("nstance-capi-workload")},
		&rbacv1.ClusterRoleBinding{ // for Cluster API's core: its permissions are tested elsewhere
			ObjectMeta: metav1.ObjectMeta{Name: w.ns},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.ns, Name: "nstance-capi-workload"}},
		},
	} {
		w.must(w.plane.Client.Create(w.ctx, o))
	}
}

func (w *kubeWorld) must(err error) {
	if err != nil {
		w.Fatal(err)
	}
}

// operate runs a whole operator until the end of the row, or stop.
func (w *kubeWorld) operate() (stop func()) {
	args := []string{"--config", w.file, "--namespace", w.ns, "--health-probe-bind-address", "0", "--metrics-bind-address", "0"}
	s, err := settings.Parse(args, settings.World{
		Getenv: func(string) string { return "" }, ReadFile: os.ReadFile, Output: os.Stderr,
	})
	w.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := kube.Run(ctx, kube.Config{
			Settings: s, REST: w.plane.Config, Version: "bench", Host: "bench", ReadFile: os.ReadFile, Now: time.Now,
			Random: func() float64 { return 0 }, Entropy: rand.Reader, Dialer: w.dial, Logger: logr.Discard(), ShardTimeout: 5 * time.Second,
		})
		if err != nil {
			w.Errorf("the operator: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	w.Cleanup(stop)
	return stop
}

func (w *kubeWorld) dial(ctx context.Context, addr string) (net.Conn, error) {
	if !strings.HasPrefix(addr, loopback[:4]) {
		return w.shards.Dial(ctx, addr)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

// eventually waits until a condition holds.
func (w *kubeWorld) eventually(what string, check func() error) {
	planetest.Eventually(w, 10*time.Minute, what, func(context.Context) error { return check() })
}

// until polls a shard, often enough for measuring the time.
func (w *kubeWorld) until(what string, holds func() bool) {
	limit := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(limit) {
			w.Fatalf("not within 30 s: %s", what)
		}
		time.Sleep(500 * time.Microsecond)
	}
}

// pools waits until all groups of the shards are imported, as that many pools.
func (w *kubeWorld) pools(want int) {
	w.eventually(fmt.Sprintf("%d pools are imported and ready", want), func() error {
		var all v1beta1.NstanceMachinePoolList
		if err := w.plane.Client.List(w.ctx, &all, client.InNamespace(w.ns)); err != nil {
			return err
		}
		ready := 0
		for i := range all.Items {
			if r := all.Items[i].Status.Ready; r != nil && *r {
				ready++
			}
		}
		if ready != want {
			return fmt.Errorf("%d of %d are ready", ready, len(all.Items))
		}
		return nil
	})
}

// machines waits until that many NstanceMachines are ready.
func (w *kubeWorld) machines(want int) {
	w.eventually(fmt.Sprintf("%d NstanceMachines are ready", want), func() error {
		var all v1beta1.NstanceMachineList
		if err := w.plane.Client.List(w.ctx, &all, client.InNamespace(w.ns)); err != nil {
			return err
		}
		ready, other := countReady(all.Items)
		if ready != want {
			return fmt.Errorf("%d of %d are; one that is not: %s", ready, len(all.Items), other)
		}
		return nil
	})
}

// scale sets the replicas of a MachinePool, and returns once the API server has accepted it.
func (w *kubeWorld) scale(name string, replicas int32) (accepted time.Time) {
	pool := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	w.must(w.plane.Client.Patch(w.ctx, pool, client.RawPatch("application/merge-patch+json", patch)))
	return time.Now()
}
