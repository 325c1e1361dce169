package operator_test

import (
	"net/http"
	"os"
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

// TestFreshStart: it registers, watches all shards, and is ready; the file brings
// another shard and takes one away while it runs.
func TestFreshStart(t *testing.T) {
	w := newWorld(t)
	w.given(true)
	p := w.start("--disable-webhooks")
	w.watched("one", 1)
	w.watched("two", 1)
	shardstest.Eventually(t, "it is ready", p.ready)
	if n := p.heard("--disable-webhooks has no effect"); n != 1 {
		t.Errorf("it says %d times that a flag has no effect", n)
	}

	w.shards.Add("three")
	w.at["three"] = w.register.Shard("three")
	w.configure("one", "three")
	w.watched("three", 1)
	before := w.watches("one")
	if err := os.WriteFile(w.file, []byte("cluster_id: another"), 0o600); err != nil {
		t.Fatal(err)
	}
	shardstest.Eventually(t, "the log tells of the file", func() bool { return p.heard("configuration file is not taken") == 1 })
	if w.watches("one") != before {
		t.Error("a shard that stayed was connected to anew")
	}
	if err := p.end(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	if len(w.register.Asked()) != 1 {
		t.Errorf("it registered %d times", len(w.register.Asked()))
	}
}

// TestStartWithCertificate: an operator that ended after its certificate was stored, and
// before it asked any shard for anything, needs neither nonce nor registration.
func TestStartWithCertificate(t *testing.T) {
	w := newWorld(t)
	w.given(true)
	for _, id := range []string{"one", "two"} {
		w.shards.Shard(id).Stop()
	}
	p := w.start()
	shardstest.Eventually(t, "it is ready", p.ready)
	if err := p.end(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	if w.watches("one")+w.watches("two") != 0 {
		t.Fatal("a shard that is down was watched")
	}
	for _, id := range []string{"one", "two"} {
		w.shards.Shard(id).Start()
		w.at[id] = w.register.Shard("x") // whoever registers is told of another shard
	}
	w.configure("one", "two")
	p = w.start()
	w.watched("one", 1)
	w.watched("two", 1)
	if err := p.end(); err != nil || len(w.register.Asked()) != 1 {
		t.Errorf("it registered %d times, %v", len(w.register.Asked()), err)
	}
}

// TestFatal: without an identity it ends, and says what is missing.
func TestFatal(t *testing.T) {
	for _, c := range []struct {
		name  string
		given func(*world)
		words []string
	}{
		{"no CA", func(*world) {}, []string{"nstance-cluster-ca", "ca.crt"}},
		{"no nonce", func(w *world) { w.given(false) }, []string{"nstance-operator-nonce", "nonce.jwt"}},
		{"no shard answers", func(w *world) {
			w.given(true)
			for id, s := range w.at {
				s.Registration = "127.0.0.1:1"
				w.at[id] = s
			}
			w.configure("one", "two")
		}, []string{"shard one", "shard two", "127.0.0.1:1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.given(w)
			p := w.start()
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

// TestTwoByMistake: two operators without leader election have one identity, and both
// work.
func TestTwoByMistake(t *testing.T) {
	w := newWorld(t)
	w.given(true)
	a, b := w.start(), w.start()
	w.watched("one", 2)
	w.watched("two", 2)
	shardstest.Eventually(t, "both are ready", func() bool { return a.ready() && b.ready() })
	if keys := slices.Compact(slices.Sorted(slices.Values(w.register.Asked()))); len(keys) != 1 {
		t.Errorf("they registered with %d keys", len(keys))
	}
	for _, p := range []*process{a, b} {
		if err := p.end(); err != nil {
			t.Errorf("stopped: %v", err)
		}
	}
}

// TestLeaders: of two with leader election one works, and the other one waits, ready;
// when the first ends the second goes on with its identity.
func TestLeaders(t *testing.T) {
	w := newWorld(t)
	w.given(true)
	first := w.start("--leader-elect")
	w.watched("one", 1)
	second := w.start("--leader-elect")
	shardstest.Eventually(t, "both are ready", func() bool { return first.ready() && second.ready() })
	if n := w.watches("one"); n != 1 {
		t.Errorf("%d watches of a shard with one leader", n)
	}
	if err := first.end(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	w.watched("one", 2)
	shardstest.Eventually(t, "the second one is ready", second.ready)
	if len(w.register.Asked()) != 1 {
		t.Errorf("they registered %d times", len(w.register.Asked()))
	}
}

// TestWaiting: an operator that waits to be elected is ready only once there is a
// certificate that it could go on with. helm test asks it, and then the nonce is deleted.
func TestWaiting(t *testing.T) {
	w := newWorld(t)
	w.given(true)
	w.elect("another")
	p := w.start("--leader-elect")
	shardstest.Eventually(t, "it says that it is not ready", func() bool { return p.readiness() == http.StatusInternalServerError })
	w.elect("")
	shardstest.Eventually(t, "it registers", p.ready)
	if err := p.end(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	w.elect("another")
	next := w.start("--leader-elect")
	shardstest.Eventually(t, "the next one is ready to be elected", next.ready)
	if n := w.watches("one"); n > 1 {
		t.Errorf("%d watches of a shard: the next one was elected", n)
	}
}

// TestWaitingForNothing: where the one that is elected has lost its certificate, or it is
// of no use, a rollout has to be able to end that one.
func TestWaitingForNothing(t *testing.T) {
	w := newWorld(t)
	w.given(false)
	useless := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "nstance-operator-cert"},
		Data:       map[string][]byte{"tls.crt": []byte("half of a pair")},
	}
	if err := w.plane.Client.Create(t.Context(), useless); err != nil {
		t.Fatal(err)
	}
	var later atomic.Int64
	w.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	w.elect("another")
	p := w.start("--leader-elect")
	shardstest.Eventually(t, "it says that it is not ready", func() bool { return p.readiness() == http.StatusInternalServerError })
	later.Store(int64(time.Minute))
	shardstest.Eventually(t, "it does not wait for ever", p.ready)
}

// TestLostLease: who is not the leader any more ends.
func TestLostLease(t *testing.T) {
	w := newWorld(t)
	w.given(true)
	p := w.start("--leader-elect")
	w.watched("one", 1)
	w.elect("somebody")
	if err := p.wait(); err == nil || !strings.Contains(err.Error(), "leader election lost") {
		t.Errorf("it ended with %v", err)
	}
}

// TestJSON: NSTANCE_K8S_JSON has nothing but JSON be asked for and sent.
func TestJSON(t *testing.T) {
	for value, want := range map[string]bool{"": true, "true": false} {
		w := newWorld(t)
		w.given(true)
		w.env["NSTANCE_K8S_JSON"] = value
		var binary atomic.Int32
		w.rest = rest.CopyConfig(w.rest)
		w.rest.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.Contains(r.Header.Get("Accept")+r.Header.Get("Content-Type"), "protobuf") {
					binary.Add(1)
				}
				return next.RoundTrip(r)
			})
		})
		p := w.start("--leader-elect")
		w.watched("one", 1)
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
