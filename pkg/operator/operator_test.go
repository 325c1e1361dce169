package operator_test

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

// TestFreshStart: it registers, watches all shards, and is ready; while it runs, the file adds a
// shard and removes one.
func TestFreshStart(t *testing.T) {
	f := newFixture(t)
	f.given(true)
	p := f.start("--disable-webhooks")
	f.watched("one", 1)
	f.watched("two", 1)
	shardstest.Eventually(t, "it is ready", p.ready)
	if n := p.heard("--disable-webhooks has no effect"); n != 1 {
		t.Errorf("it says %d times that a flag has no effect", n)
	}

	f.shards.Add("three")
	f.at["three"] = f.register.Shard("three")
	f.configure("one", "three")
	f.watched("three", 1)
	before := f.watches("one")
	f.write("cluster_id: another")
	shardstest.Eventually(t, "the log tells of the file", func() bool { return p.heard("configuration file was not applied") == 1 })
	if f.watches("one") != before {
		t.Error("a shard that stayed was connected to anew")
	}
	if err := p.end(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	if len(f.register.Asked()) != 1 {
		t.Errorf("it registered %d times", len(f.register.Asked()))
	}
}

// TestStartWithCertificate: an operator that ended after its certificate was stored, and before its
// first call, needs neither nonce nor registration.
func TestStartWithCertificate(t *testing.T) {
	f := newFixture(t)
	f.given(true)
	for _, id := range []string{"one", "two"} {
		f.shards.Shard(id).Stop()
	}
	p := f.start()
	shardstest.Eventually(t, "it is ready", p.ready)
	if err := p.end(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	if f.watches("one")+f.watches("two") != 0 {
		t.Fatal("a shard that is down was watched")
	}
	for _, id := range []string{"one", "two"} {
		f.shards.Shard(id).Start()
		f.at[id] = f.register.Shard("x") // registration returns another shard's addresses
	}
	f.configure("one", "two")
	p = f.start()
	f.watched("one", 1)
	f.watched("two", 1)
	if err := p.end(); err != nil || len(f.register.Asked()) != 1 {
		t.Errorf("it registered %d times, %v", len(f.register.Asked()), err)
	}
}

// TestFatal: without an identity it ends, and names what is missing.
func TestFatal(t *testing.T) {
	for _, c := range []struct {
		name  string
		given func(*fixture)
		words []string
	}{
		{"no CA", func(*fixture) {}, []string{"nstance-cluster-ca", "ca.crt"}},
		{"no nonce", func(f *fixture) { f.given(false) }, []string{"nstance-operator-nonce", "nonce.jwt"}},
		{"no shard answers", func(f *fixture) {
			f.given(true)
			f.patience = 15 * time.Second // retried at each shard
			for id, s := range f.at {
				s.Registration = "127.0.0.1:1"
				f.at[id] = s
			}
			f.configure("one", "two")
		}, []string{"shard one", "shard two", "127.0.0.1:1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			c.given(f)
			p := f.start()
			err := p.wait()
			if err == nil {
				t.Fatal("no error")
			}
			for _, word := range c.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%v\nlacks %q", err, word)
				}
			}
		})
	}
}

// TestTwoByMistake: two operators without leader election share one identity, and both work.
func TestTwoByMistake(t *testing.T) {
	f := newFixture(t)
	f.given(true)
	a, b := f.start(), f.start()
	f.watched("one", 2)
	f.watched("two", 2)
	shardstest.Eventually(t, "both are ready", func() bool { return a.ready() && b.ready() })
	if keys := slices.Compact(slices.Sorted(slices.Values(f.register.Asked()))); len(keys) != 1 {
		t.Errorf("they registered with %d keys", len(keys))
	}
	for _, p := range []*process{a, b} {
		if err := p.end(); err != nil {
			t.Errorf("stopped: %v", err)
		}
	}
}

// TestLeaders: of two with leader election one works, and the other one waits, ready; when the
// first ends the second continues with its identity.
func TestLeaders(t *testing.T) {
	f := newFixture(t)
	f.given(true)
	first := f.start("--leader-elect")
	f.watched("one", 1)
	second := f.start("--leader-elect")
	shardstest.Eventually(t, "both are ready", func() bool { return first.ready() && second.ready() })
	if n := f.watches("one"); n != 1 {
		t.Errorf("%d watches of a shard with one leader", n)
	}
	if err := first.end(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	f.watched("one", 2)
	shardstest.Eventually(t, "the second one is ready", second.ready)
	if len(f.register.Asked()) != 1 {
		t.Errorf("they registered %d times", len(f.register.Asked()))
	}
}

// TestWaiting: an operator that waits for its election is ready only once there is a certificate
// with which it could continue: after a successful helm test the nonce is deleted.
func TestWaiting(t *testing.T) {
	f := newFixture(t)
	f.given(true)
	f.elect("another")
	p := f.start("--leader-elect")
	shardstest.Eventually(t, "it says that it is not ready", func() bool { return p.readiness() == http.StatusInternalServerError })
	f.elect("")
	shardstest.Eventually(t, "it registers", p.ready)
	if err := p.end(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	f.elect("another")
	next := f.start("--leader-elect")
	shardstest.Eventually(t, "the next one is ready to be elected", next.ready)
	if n := f.watches("one"); n > 1 {
		t.Errorf("%d watches of a shard: the next one was elected", n)
	}
}

// TestWaitingForNothing: if the elected one has lost its certificate, or the certificate is
// useless, a rollout must be able to end that one.
func TestWaitingForNothing(t *testing.T) {
	f := newFixture(t)
	f.given(false)
	useless := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "nstance-operator-cert"},
		Data:       map[string][]byte{"tls.crt": []byte("half of a pair")},
	}
	if err := f.plane.Client.Create(t.Context(), useless); err != nil {
		t.Fatal(err)
	}
	var later atomic.Int64
	f.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	f.elect("another")
	p := f.start("--leader-elect")
	shardstest.Eventually(t, "it says that it is not ready", func() bool { return p.readiness() == http.StatusInternalServerError })
	later.Store(int64(time.Minute))
	shardstest.Eventually(t, "it does not wait for ever", p.ready)
}

// TestLostLease: an operator that is no longer the leader ends.
func TestLostLease(t *testing.T) {
	f := newFixture(t)
	f.given(true)
	p := f.start("--leader-elect")
	f.watched("one", 1)
	f.elect("another")
	if err := p.wait(); err == nil || !strings.Contains(err.Error(), "leader election lost") {
		t.Errorf("it ended with %v", err)
	}
}

// TestJSON: with NSTANCE_K8S_JSON only JSON is requested and sent.
func TestJSON(t *testing.T) {
	for value, want := range map[string]bool{"": true, "true": false} {
		f := newFixture(t)
		f.given(true)
		f.env["NSTANCE_K8S_JSON"] = value
		var binary atomic.Int32
		f.rest = rest.CopyConfig(f.rest)
		f.rest.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.Contains(r.Header.Get("Accept")+r.Header.Get("Content-Type"), "protobuf") {
					binary.Add(1)
				}
				return next.RoundTrip(r)
			})
		})
		p := f.start("--leader-elect")
		f.watched("one", 1)
		if err := p.end(); err != nil {
			t.Errorf("stopped: %v", err)
		}
		if n := binary.Load(); (n > 0) != want {
			t.Errorf("NSTANCE_K8S_JSON=%s: %d requests with protobuf", value, n)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
