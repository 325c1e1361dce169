//go:build integration

package operator

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestASpotNotice: a machine's announced termination, with its time, is a condition of its Machine.
// Its node is drained before, and another machine replaces it.
func TestASpotNotice(t *testing.T) {
	cloud := newMetadata(t)
	f := newFixture(t, func(shard, config string) string {
		if shard != dev1 {
			return config
		}
		return addGroup(config, "spot", 1, fmt.Sprintf(
			`{ "NSTANCE_PROVIDER": "aws", "NSTANCE_SPOT_POLL_INTERVAL": "500ms", "AWS_EC2_METADATA_SERVICE_ENDPOINT": %q }`, cloud.URL))
	})
	f.operate()
	f.running("spot", 1)
	victim := f.settled("spot", 1)[0]
	pod := f.podOn(victim, "shop", "shop-1")
	f.budget("shop")

	at := time.Now().Add(45 * time.Second).Truncate(time.Second).UTC()
	cloud.announce(at)
	f.eventually("the conditions tell when it ends", func(ctx context.Context) error {
		var infra v1beta1.NstanceMachine
		if err := f.get(ctx, victim, &infra); err != nil {
			return err
		}
		end := at.Format(time.RFC3339)
		c := meta.FindStatusCondition(infra.Status.Conditions, v1beta1.ConditionTerminating)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "TerminationNotice" || !strings.Contains(c.Message, end) {
			return fmt.Errorf("NstanceMachine: %+v", infra.Status.Conditions)
		}
		var m clusterv1.Machine
		if err := f.get(ctx, victim, &m); err != nil {
			return err
		}
		c = meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineInfrastructureReadyCondition)
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, end) {
			return fmt.Errorf("Machine: %+v", m.Status.Conditions)
		}
		return f.untouched(ctx, pod)
	})
	f.cordoned(victim)
	f.eventually("another machine comes for it", func(context.Context) error {
		if now := f.instances("spot", dev1); len(now) != 1 || now[0].ID == victim || now[0].Phase != "running" {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	f.podOn(f.instances("spot", dev1)[0].ID, "shop", "shop-2")
	f.eventually("the node is emptied", func(ctx context.Context) error {
		if is, err := f.there(ctx, pod.Name, &corev1.Pod{}); is || err != nil {
			return fmt.Errorf("the pod is there: %w", err)
		}
		return nil
	})
	f.eventually("its Node and its Machine go", func(ctx context.Context) error { return f.gone(ctx, victim) })
	if now := time.Now(); now.After(at) {
		t.Errorf("it was gone at %v, after the end that was announced, %v", now, at)
	}
	f.running("spot", 1)
	f.settled("spot", 1)
}

// addGroup adds a group whose agents have this environment to a shard's config.
func addGroup(config, name string, size int, env string) string {
	after := func(line, added string) { config = strings.Replace(config, line, line+"\n"+added, 1) }
	after(`"templates": {`, fmt.Sprintf(`%q: { "kind": "knd", "arch": "amd64", "subnet_pool": "workers", "args": { "env": %s } },`, name, env))
	const pods = `"on_demand": { "namespaces": ["*"], "max": 10 }`
	after(`"default": {`, fmt.Sprintf(`%q: { "template": %q, "size": %d, %s },`, name, name, size, pods))
	return config
}

// metadata is the metadata service of a cloud with spot machines. All agents here are on one host,
// so it distinguishes them by their tokens.
type metadata struct {
	*httptest.Server

	mu     sync.Mutex
	tokens int
	last   int       // the last token to which the notice applies
	at     time.Time // the announced time
}

func newMetadata(t *testing.T) *metadata {
	t.Helper()
	m := &metadata{}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, _ *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.tokens++
		fmt.Fprint(w, m.tokens)
	})
	mux.HandleFunc("GET /latest/meta-data/instance-life-cycle", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "spot") })
	mux.HandleFunc("GET /latest/meta-data/spot/instance-action", func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		var token int
		if _, err := fmt.Sscan(r.Header.Get("X-aws-ec2-metadata-token"), &token); err != nil || token > m.last {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"action":"terminate","time":%q}`, m.at.Format(time.RFC3339))
	})
	m.Server = httptest.NewServer(mux)
	t.Cleanup(m.Close)
	return m
}

// announce announces the termination to all present machines, and to none that is created later.
func (m *metadata) announce(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last, m.at = m.tokens, at
}
