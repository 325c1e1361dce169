package agents_test

import (
	"crypto/rand"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/agents"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// deepShard uses so many KiB of stack in each call.
type deepShard struct {
	*shard
	kib     int
	reports sync.WaitGroup
}

func (s *deepShard) AgentConnected(fleet.InstanceID)               { deep(s.kib) }
func (s *deepShard) AgentReport(fleet.InstanceID, fleet.Report)    { deep(s.kib); s.reports.Done() }
func (s *deepShard) AgentDisconnected(fleet.InstanceID, time.Time) {}

// deep uses so many KiB of stack.
//
//go:noinline
func deep(kib int) byte {
	var frame [1 << 10]byte
	frame[kib] = byte(kib)
	if kib > 0 {
		return deep(kib-1) + frame[kib]
	}
	return frame[0]
}

// below calls f with stack in use, like gRPC calls a handler: enough that a grown stack does
// not shrink again.
//
//go:noinline
func below(f func()) byte {
	var frame [900]byte
	f()
	return frame[len(frame)-1]
}

// TestStreamsKeepNoStack: neither the start of a stream nor a report grows the stack that a
// waiting stream keeps.
func TestStreamsKeepNoStack(t *testing.T) {
	shallow, deep := stackOfStream(t, 0), stackOfStream(t, 16)
	t.Logf("%d and %d bytes of stack for each stream", shallow, deep)
	if most := shallow + 8<<10; deep > most { // a stack that grew for 16 KiB has 32; which ones are cached differs
		t.Errorf("a stream that waits keeps %d bytes of stack, want about the %d of one that never needed more", deep, shallow)
	}
}

// stackOfStream returns the stack kept by each of many streams that have reported to a shard
// that uses so many KiB.
func stackOfStream(t *testing.T, kib int) int {
	t.Helper()
	const streams = 300
	sh := &deepShard{shard: newShard(), kib: kib}
	service := agents.New(agents.Config{Shard: func() (agents.Shard, error) { return sh, nil }, Now: time.Now})
	all := make([]*stream, streams)
	before := stacks()
	var served sync.WaitGroup
	sh.reports.Add(streams)
	for n := range all {
		s := newStreamOf(numbered(t, n))
		all[n] = s
		served.Go(func() { below(func() { _ = serve(service, s) }) })
	}
	for _, s := range all {
		s.in <- &nstancev1.ReportHealthRequest{}
	}
	sh.reports.Wait()
	each := (stacks() - before) / streams
	for _, s := range all {
		close(s.in)
	}
	served.Wait()
	return each
}

// stacks returns the size of all goroutine stacks once they have shrunk.
func stacks() int {
	for range 8 { // each halves them
		runtime.GC()
	}
	sample := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// numbered returns the n-th instance ID.
func numbered(t *testing.T, n int) fleet.InstanceID {
	t.Helper()
	made, err := fleet.NewID("knd", time.UnixMilli(int64(n)), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
