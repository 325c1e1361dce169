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

// BenchmarkReported measures a report without changes.
func BenchmarkReported(b *testing.B) {
	for _, c := range []struct{ name, files string }{{"no files", ""}, {"a file and a certificate", plain + "," + certificate}} {
		b.Run(c.name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			f := newFixtureIn(b, ctx, c.files)
			a := f.awake("default")
			r := a.state()
			b.ReportAllocs()
			for b.Loop() {
				f.d.Reported(a.id, r)
			}
		})
	}
}

// BenchmarkMemory measures the memory of a connected agent without files.
func BenchmarkMemory(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := newFixtureIn(b, ctx, "")
	g, _ := f.Group(fleet.GroupKey{Tenant: "default", Name: "web"})
	const agents = 5000
	ids := make([]fleet.InstanceID, agents)
	for n := range ids {
		ids[n] = f.instance("default").id
	}
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var closers []func()
		for _, id := range ids {
			keys := f.d.OpenKeys(id, func([]delivery.KeyRequest) error { return nil })
			files := f.d.OpenFiles(id, func(delivery.Push) error { return nil })
			closers = append(closers, func() { f.d.CloseKeys(id, keys); f.d.CloseFiles(id, files); f.d.Disconnected(id) })
			f.d.Reported(id, delivery.FileReport{ConfigHash: g.Hashes.Runtime})
		}
		time.Sleep(100 * time.Millisecond) // for the first goroutines
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/agents, "bytes/agent")
		for _, done := range closers {
			done()
		}
	}
}

// BenchmarkIssue measures certificates per second: judged, signed, logged and delivered, each
// to another agent.
func BenchmarkIssue(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := newFixtureIn(b, ctx, certificate)
	arrived := make(chan struct{}, 1<<16)
	const agents = 1000
	for b.Loop() {
		for range agents {
			a := f.instance("default")
			key, _ := pki.GenerateKey(zeros{})
			text, _ := pki.EncodePublicKey(pki.PublicKey(key))
			f.d.OpenKeys(a.id, func([]delivery.KeyRequest) error {
				go func() { _ = f.d.Submit(a.id, map[string]string{"k": string(text)}) }()
				return nil
			})
			f.d.OpenFiles(a.id, func(delivery.Push) error { arrived <- struct{}{}; return nil })
			f.d.Reported(a.id, delivery.FileReport{})
		}
		for range agents {
			<-arrived
		}
	}
	b.ReportMetric(float64(b.N*agents)/b.Elapsed().Seconds(), "certs/s")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// awake returns an agent with its streams open and its set confirmed, outside of a bubble.
func (f *fixture) awake(tenant string) *agent {
	a := f.instance(tenant)
	a.connectNow()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		i, _ := f.Instance(a.id)
		if g, _ := f.Group(i.GroupKey()); a.state().ConfigHash == g.Hashes.Runtime {
			f.d.Reported(a.id, a.state())
			time.Sleep(10 * time.Millisecond)
			return a
		}
	}
	f.t.Fatal("no set came")
	return nil
}
