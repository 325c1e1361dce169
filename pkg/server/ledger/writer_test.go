package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// bare returns a ledger without a cache on a store with injected faults.
func bare(t *testing.T) (*ledger.Ledger, *objecttest.Faults, *mem.Store) {
	t.Helper()
	inner := mem.New(mem.Config{HashETags: true})
	faults := objecttest.NewFaults(inner, nil)
	cfg := config(t, faults)
	cfg.CachePath = ""
	return open(t, cfg), faults, inner
}

func TestUpdateRefuses(t *testing.T) {
	l, _, _ := bare(t)
	w := l.Lead(term{epoch: 2})
	create(t, w, 1)
	errOwn := errors.New("own reason")
	tests := []struct {
		name   string
		id     fleet.InstanceID
		change func(*fleet.Instance) error
		want   error
	}{
		{"unknown instance", newID(9), move(fleet.Running), ledger.ErrNotFound},
		{"the change's own error", newID(1), func(*fleet.Instance) error { return errOwn }, errOwn},
		{"another phase than the next", newID(1), move("asleep"), ledger.ErrPhase},
		{"another group", newID(1), func(i *fleet.Instance) error { i.Group = "db"; return nil }, nil},
		{"another id", newID(1), func(i *fleet.Instance) error { i.ID = newID(2); return nil }, nil},
		{"another tenant", newID(1), func(i *fleet.Instance) error { i.Tenant = "prod"; return nil }, nil},
		{"on-demand", newID(1), func(i *fleet.Instance) error { i.OnDemand = true; return nil }, nil},
	}
	for _, tt := range tests {
		_, err := w.Update(t.Context(), tt.id, tt.change)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	keyed := func(key string) error {
		_, err := w.Update(t.Context(), newID(2), func(i *fleet.Instance) error { i.PublicKeySHA256 = key; return nil })
		return err
	}
	create(t, w, 2)
	if keyed("") != nil || keyed("aa") != nil || keyed("aa") != nil || keyed("bb") == nil || keyed("") == nil {
		t.Error("a key may be set, and never changes then")
	}
	for _, from := range fleet.Phases() {
		for _, to := range fleet.Phases() {
			if l, w, ok := inPhase(t, from); ok {
				_, err := w.Update(t.Context(), newID(1), move(to))
				if legal := from == to || from.CanMove(to); legal != (err == nil) || !legal && !errors.Is(err, ledger.ErrPhase) {
					t.Errorf("%s to %s: %v", from, to, err)
				}
				if i, _ := l.Get(newID(1)); err != nil && i.Phase != from {
					t.Errorf("%s to %s: refused, and now %s", from, to, i.Phase)
				}
			}
		}
	}
	if i, _ := l.Get(newID(1)); i.Rev != 1 {
		t.Errorf("rev %d after refusals", i.Rev)
	}
}

// inPhase creates a ledger with one instance in the phase.
func inPhase(t *testing.T, phase fleet.Phase) (*ledger.Ledger, *ledger.Writer, bool) {
	t.Helper()
	l, _, _ := bare(t)
	w := l.Lead(term{epoch: 2})
	create(t, w, 1)
	for _, p := range fleet.Phases()[1:] {
		if i, _ := l.Get(newID(1)); i.Phase == phase {
			break
		}
		update(t, w, 1, p)
	}
	i, _ := l.Get(newID(1))
	return l, w, i.Phase == phase
}

func TestCreateRefuses(t *testing.T) {
	l, _, _ := bare(t)
	w := l.Lead(term{epoch: 2})
	create(t, w, 1)
	for name, spoil := range map[string]func(*fleet.Instance){
		"id taken":     func(i *fleet.Instance) { i.ID = newID(1); i.Hostname = "other" },
		"bad id":       func(i *fleet.Instance) { i.ID = "knd" },
		"bad tenant":   func(i *fleet.Instance) { i.Tenant = "a/b" },
		"bad group":    func(i *fleet.Instance) { i.Group = "" },
		"not pending":  func(i *fleet.Instance) { i.Phase = fleet.Running },
		"out of range": func(i *fleet.Instance) { i.CreatedAt = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		i := pending(2)
		spoil(&i)
		if _, err := w.Create(t.Context(), i); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if got := ids(l.Instances()); got != "1" {
		t.Errorf("instances: %s", got)
	}
}

// Every write fails in every way: the result is right, the store has it once, and memory agrees
// with the store.
func TestEveryWriteFailedEveryWay(t *testing.T) {
	for _, fault := range []objecttest.Fault{objecttest.Dropped, objecttest.ReplyLost, objecttest.Late} {
		for step := range 6 {
			t.Run(fmt.Sprintf("fault=%d,step=%d", fault, step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					failOneWrite(t, objecttest.Outcome{Fault: fault, Delay: 200 * time.Millisecond}, step)
				})
			})
		}
	}
}

func failOneWrite(t *testing.T, o objecttest.Outcome, step int) {
	l, faults, inner := bare(t)
	w := l.Lead(term{epoch: 5})
	steps := []func() error{
		func() error { _, err := w.Create(t.Context(), pending(1)); return err },
	}
	for _, phase := range fleet.Phases()[1:] {
		steps = append(steps, func() error { _, err := w.Update(t.Context(), newID(1), move(phase)); return err })
	}
	steps = append(steps, func() error { return w.Remove(t.Context(), newID(1)) })
	for n, do := range steps {
		if n == step {
			faults.Set(objecttest.Script(o))
		}
		err := do()
		if err != nil && n == len(steps)-1 && errors.Is(err, ledger.ErrUnknown) {
			err = do() // a delete is repeated, not read back
		}
		if err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		faults.Wait()
		if n == len(steps)-1 {
			break
		}
		got, ok := l.Get(newID(1))
		stored, err := l.Fetch(t.Context(), "default", newID(1))
		if err != nil || !ok || got.Rev != stored.Rev || stored.Rev != uint64(n+1) || stored.Phase != fleet.Phases()[n] {
			t.Fatalf("step %d: memory %+v, store %+v, %v", n, got, stored, err)
		}
	}
	if _, err := inner.Get(t.Context(), key(1)); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("after the removal: %v", err)
	}
	if len(l.Instances()) != 0 {
		t.Error("memory still has it")
	}
}

// If reading back also fails, repeating the call finds its own write, and does not write twice.
func TestUnknownThenRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, faults, _ := bare(t)
		w := l.Lead(term{epoch: 5})
		short := func(do func(ctx context.Context) error) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return do(ctx)
		}
		calls := []func(ctx context.Context) error{
			func(ctx context.Context) error { _, err := w.Create(ctx, pending(1)); return err },
			func(ctx context.Context) error { _, err := w.Update(ctx, newID(1), move(fleet.Running)); return err },
		}
		for n, call := range calls {
			// The write lands, and then the store does not respond.
			written := false
			faults.Set(func(r objecttest.Request) objecttest.Outcome {
				if r.Verb == object.VerbPut && !written {
					written = true
					return objecttest.Outcome{Fault: objecttest.ReplyLost}
				}
				return objecttest.Outcome{Fault: objecttest.Dropped}
			})
			if err := short(call); !errors.Is(err, ledger.ErrUnknown) {
				t.Errorf("call %d: %v, want unknown", n, err)
			}
			if i, ok := l.Get(newID(1)); ok && i.Rev > uint64(n) {
				t.Errorf("call %d: memory claims rev %d", n, i.Rev)
			}
			faults.Set(nil)
			if err := short(call); err != nil {
				t.Errorf("call %d repeated: %v", n, err)
			}
			if i, _ := l.Get(newID(1)); i.Rev != uint64(n+1) {
				t.Errorf("call %d repeated: rev %d", n, i.Rev)
			}
		}
	})
}

func TestConcurrentUpdatesOfOneInstance(t *testing.T) {
	l, _, _ := bare(t)
	w := l.Lead(term{epoch: 1})
	create(t, w, 1)
	const writers, each = 8, 25
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				_, err := w.Update(t.Context(), newID(1), func(i *fleet.Instance) error {
					n, _ := strconv.Atoi(i.Hostname)
					i.Hostname = strconv.Itoa(n + 1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	stored, err := l.Fetch(t.Context(), "default", newID(1))
	if err != nil || stored.Hostname != strconv.Itoa(writers*each) || stored.Rev != 1+writers*each {
		t.Errorf("%+v, %v", stored, err)
	}
}

// Two terms that both believe to lead race. No write is lost to another, and the older one never
// overwrites the newer.
func TestTwoTermsRace(t *testing.T) {
	inner := mem.New(mem.Config{HashETags: true})
	writers := make([]*ledger.Writer, 2)
	for n := range writers {
		cfg := config(t, inner)
		cfg.CachePath, cfg.Writer = "", fmt.Sprintf("server-%d", n+1)
		l := open(t, cfg)
		writers[n] = l.Lead(term{epoch: uint64(n + 1)})
		if n == 0 {
			create(t, writers[0], 1)
		}
		load(t, l)
	}
	var acked [2]int
	var epochs []uint64
	var mu sync.Mutex
	var all sync.WaitGroup
	for n, w := range writers {
		all.Go(func() {
			for range 50 {
				i, err := w.Update(t.Context(), newID(1), func(i *fleet.Instance) error {
					i.IPs = append(i.IPs, fmt.Sprint(n))
					return nil
				})
				mu.Lock()
				if err == nil {
					acked[n]++
					epochs = append(epochs, i.Epoch)
				} else if !isConflict(err) {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	cfg := config(t, inner)
	cfg.CachePath = ""
	l := open(t, cfg)
	load(t, l)
	i, _ := l.Get(newID(1))
	if int(i.Rev) != 1+acked[0]+acked[1] || len(i.IPs) != acked[0]+acked[1] {
		t.Errorf("rev %d, %d values, %v acknowledged", i.Rev, len(i.IPs), acked)
	}
	if acked[1] == 0 {
		t.Error("the newer term never wrote")
	}
	seenNew := false
	for _, v := range i.IPs {
		if v == "0" && seenNew {
			t.Fatalf("the older term wrote over the newer: %v", i.IPs)
		}
		seenNew = seenNew || v == "1"
	}
}

func TestConflictReloads(t *testing.T) {
	l, _, inner := bare(t)
	w := l.Lead(term{epoch: 2})
	create(t, w, 1)
	o, err := inner.Get(t.Context(), key(1))
	if err != nil {
		t.Fatal(err)
	}
	edited := append([]byte(nil), o.Body...)
	put(t, inner, key(1), string(append(edited, '\n'))) // an external edit
	if _, err := w.Update(t.Context(), newID(1), move(fleet.Running)); !isConflict(err) {
		t.Errorf("over a change: %v", err)
	}
	update(t, w, 1, fleet.Running)
	if err := inner.Delete(t.Context(), key(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Update(t.Context(), newID(1), move(fleet.Draining)); !isConflict(err) {
		t.Errorf("over a removal: %v", err)
	}
	if _, ok := l.Get(newID(1)); ok {
		t.Error("the removed record is still in memory")
	}
}

// A term that is lost during a write acknowledges nothing, although memory has what landed.
func TestFenceLostDuringTheWrite(t *testing.T) {
	l, _, _ := bare(t)
	lost := false
	w := l.Lead(term{epoch: 2, lost: func() bool { return lost }})
	create(t, w, 1)
	lost = true
	if _, err := w.Update(t.Context(), newID(1), move(fleet.Running)); !errors.Is(err, errLost) {
		t.Errorf("update: %v", err)
	}
	if _, err := w.Create(t.Context(), pending(2)); !errors.Is(err, errLost) {
		t.Errorf("create: %v", err)
	}
	if _, err := w.EditGroup(t.Context(), web, still, resize(3)); !errors.Is(err, errLost) {
		t.Errorf("group: %v", err)
	}
	if i, _ := l.Get(newID(1)); i.Phase != fleet.Running {
		t.Errorf("memory does not follow the object: %s", i.Phase)
	}
}

func TestLockWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, faults, _ := bare(t)
		w := l.Lead(term{epoch: 1})
		create(t, w, 1)
		faults.Set(objecttest.Always(objecttest.Outcome{Fault: objecttest.Hung}))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := w.Update(ctx, newID(1), move(fleet.Running)); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		faults.Set(nil)
		update(t, w, 1, fleet.Running)
	})
}
