package delivery_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/delivery"
)

// BenchmarkReported is a report that shows all in order.
func BenchmarkReported(b *testing.B) {
	for _, c := range []struct{ name, files string }{{"no files", ""}, {"a file and a certificate", plain + "," + certificate}} {
		b.Run(c.name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s := newSiteIn(b, ctx, c.files)
			a := s.awake("default")
			r := a.state()
			b.ReportAllocs()
			for b.Loop() {
				s.d.Reported(a.id, r)
			}
		})
	}
}

// BenchmarkMemory is what a connected agent without files holds.
func BenchmarkMemory(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := newSiteIn(b, ctx, "")
	g, _ := s.Group(fleet.GroupKey{Tenant: "default", Name: "web"})
	const agents = 5000
	ids := make([]fleet.InstanceID, agents)
	for n := range ids {
		ids[n] = s.instance("default").id
	}
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var closers []func()
		for _, id := range ids {
			keys := s.d.OpenKeys(id, func([]delivery.KeyRequest) error { return nil })
			files := s.d.OpenFiles(id, func(delivery.Push) error { return nil })
			closers = append(closers, func() { s.d.CloseKeys(id, keys); s.d.CloseFiles(id, files); s.d.Disconnected(id) })
			s.d.Reported(id, delivery.FileReport{ConfigHash: g.Hashes.Runtime})
		}
		time.Sleep(100 * time.Millisecond) // for the goroutines of the first look
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/agents, "bytes/agent")
		for _, done := range closers {
			done()
		}
	}
}

// BenchmarkIssue reports certificates a second, judged, signed, logged and
// delivered, each to an agent of its own.
func BenchmarkIssue(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := newSiteIn(b, ctx, certificate)
	arrived := make(chan struct{}, 1<<16)
	const agents = 1000
	for b.Loop() {
		for range agents {
			a := s.instance("default")
			key, _ := pki.GenerateKey(zeros{})
			text, _ := pki.EncodePublicKey(pki.PublicKey(key))
			s.d.OpenKeys(a.id, func([]delivery.KeyRequest) error {
				go func() { _ = s.d.Submit(a.id, map[string]string{"k": string(text)}) }()
				return nil
			})
			s.d.OpenFiles(a.id, func(delivery.Push) error { arrived <- struct{}{}; return nil })
			s.d.Reported(a.id, delivery.FileReport{})
		}
		for range agents {
			<-arrived
		}
	}
	b.ReportMetric(float64(b.N*agents)/b.Elapsed().Seconds(), "certs/s")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// awake is an agent with its streams open and its set confirmed, outside of a
// bubble.
func (s *site) awake(tenant string) *agent {
	a := s.instance(tenant)
	a.connectNow()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		i, _ := s.Instance(a.id)
		if g, _ := s.Group(i.GroupKey()); a.state().ConfigHash == g.Hashes.Runtime {
			s.d.Reported(a.id, a.state())
			time.Sleep(10 * time.Millisecond)
			return a
		}
	}
	s.t.Fatal("no set came")
	return nil
}
