package history_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/history"
)

const key = "events/dev-1.json"

// fixture is a bucket with the events of one shard, in simulated time.
type fixture struct {
	*testing.T
	inner  *mem.Store
	faults *objecttest.Faults
	counts *objecttest.Counting
	denied atomic.Bool // whether the terms may not write
}

func (f *fixture) permit(context.Context) error {
	if f.denied.Load() {
		return errors.New("not the leader")
	}
	return nil
}

func simulated(t *testing.T, test func(f *fixture)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, inner: mem.New(mem.Config{HashETags: true})}
		f.faults = objecttest.NewFaults(f.inner, nil)
		f.counts = objecttest.NewCounting(f.faults)
		test(f)
	})
}

// term is a leader's history, which runs until it ends.
type term struct {
	*history.History
	end func()
}

func (f *fixture) lead(epoch uint64) *term {
	f.Helper()
	h, err := history.New(history.Config{
		Store: f.counts, Key: key, Epoch: epoch, Writer: fmt.Sprintf("w%d", epoch), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Timeout: func() time.Duration { return 10 * time.Second },
		Permit:  f.permit,
		Readable: func(epoch uint64) error {
			if epoch > 1000 {
				return fmt.Errorf("epoch: %d", epoch)
			}
			return nil
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.Context())
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	t := &term{h, sync.OnceFunc(func() { cancel(); <-done; h.Flush(context.Background()) })}
	f.Cleanup(t.end)
	return t
}

// happened records a decision about a group of tenant default.
func (t *term) happened(reason string) {
	t.Record(fleet.Event{Kind: fleet.EventDelete, Tenant: "default", Group: "web", Actor: "rule:test", Reason: reason})
}

func every(*fleet.Event) bool { return true }

// told returns IDs and reasons of all events.
func (t *term) told() (told []string) {
	for _, e := range t.Events(fleet.EventID{}, every) {
		told = append(told, e.ID.String()+" "+e.Reason)
	}
	return told
}

func (f *fixture) want(t *term, want ...string) {
	f.Helper()
	if got := t.told(); !slices.Equal(got, want) {
		f.Errorf("the events are %q, want %q", got, want)
	}
}

// object returns the stored object; zero if there is none.
func (f *fixture) object() (o struct {
	Epoch  uint64        `json:"epoch"`
	Rev    uint64        `json:"rev"`
	Events []fleet.Event `json:"events"`
}) {
	f.Helper()
	stored, err := f.inner.Get(f.Context(), key)
	if err == nil {
		err = json.Unmarshal(stored.Body, &o)
	}
	if err != nil {
		f.Fatal(err)
	}
	return o
}

func (f *fixture) put(body string) {
	f.Helper()
	if _, err := f.inner.Put(f.Context(), key, []byte(body), object.Precondition{}); err != nil {
		f.Fatal(err)
	}
}
