package ledger_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

const benchInstances = 10_000

// benchStore holds running instances in a store that takes 1 ms per request.
func benchStore(b *testing.B) *objecttest.Counting {
	b.Helper()
	store := mem.New(mem.Config{Latency: time.Millisecond, HashETags: true})
	quick := mem.New(mem.Config{HashETags: true})
	for n := range benchInstances {
		i := pending(n)
		i.Phase, i.Epoch, i.Rev, i.Writer = fleet.Running, 1, 2, "server-1"
		i.RegisteredAt, i.Hostname, i.IPs = new(start), string(i.ID), []string{"10.0.0.1", "fd00::1"}
		i.PublicKeySHA256 = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"
		body, err := json.Marshal(i)
		if err != nil {
			b.Fatal(err)
		}
		put(b, quick, key(n), string(body))
	}
	fill(b, store, quick)
	return objecttest.NewCounting(store)
}

// fill copies without waiting for one request after the other.
func fill(b *testing.B, to, from object.Store) {
	b.Helper()
	infos, err := object.All(b.Context(), from, "")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error)
	const workers = 64
	for w := range workers {
		go func() {
			for n := w; n < len(infos); n += workers {
				o, err := from.Get(b.Context(), infos[n].Key)
				if err == nil {
					_, err = to.Put(b.Context(), o.Key, o.Body, object.Precondition{})
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	store := benchStore(b)
	cfg := config(b, store)
	run := func(b *testing.B, prepare func(), wantReads int64) {
		for b.Loop() {
			b.StopTimer()
			prepare()
			before := store.Counts()
			b.StartTimer()
			l := open(b, cfg)
			if s := load(b, l); s.Listed != benchInstances {
				b.Fatalf("%+v", s)
			}
			b.StopTimer()
			closeLedger(b, l)
			if n := store.Counts().Sub(before).Get - groupsRead; n != wantReads {
				b.Fatalf("%d reads, want %d", n, wantReads)
			}
			b.StartTimer()
		}
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/start")
	}
	b.Run("cold", func(b *testing.B) {
		run(b, func() { _ = os.Remove(cfg.CachePath) }, benchInstances)
	})
	b.Run("warm", func(b *testing.B) { run(b, func() {}, 0) })
}

func BenchmarkGroup(b *testing.B) {
	cfg := config(b, mem.New(mem.Config{}))
	cfg.CachePath = ""
	l := open(b, cfg)
	w := l.Lead(term{epoch: 1})
	for n := range 1000 {
		create(b, w, n)
	}
	for b.Loop() {
		if len(l.Group(pending(1).GroupKey())) != 1000 {
			b.Fatal("wrong")
		}
	}
}
