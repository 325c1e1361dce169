package ledger_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/server/ledger"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// term is a fence that holds until it is lost.
type term struct {
	epoch uint64
	lost  func() bool // called after the write; nil: never lost
	risen *uint64     // receives the argument of RiseAbove; may be nil
}

var errLost = errors.New("term lost")

func (t term) Epoch() uint64 { return t.epoch }

func (t term) RiseAbove(epoch uint64) {
	if t.risen != nil {
		*t.risen = epoch
	}
}

func (t term) Act(ctx context.Context, write func(context.Context) error) error {
	if err := write(ctx); err != nil {
		return err
	}
	if t.lost != nil && t.lost() {
		return errLost
	}
	return nil
}

func newID(n int) fleet.InstanceID {
	var b [10]byte
	binary.BigEndian.PutUint64(b[2:], uint64(n))
	id, err := fleet.NewID("knd", start.Add(time.Duration(n)*time.Second), bytes.NewReader(b[:]))
	if err != nil {
		panic(err)
	}
	return id
}

func pending(n int) fleet.Instance {
	return fleet.Instance{
		ID: newID(n), Tenant: "default", Group: "web", Phase: fleet.Pending, CreatedAt: start,
		Hashes: fleet.Hashes{Infra: "i", Runtime: "r"},
	}
}

func key(n int) string { return "instance/dev-1/default." + newID(n).StorageKey() + ".json" }

// config returns a Config with the test's own cache file.
func config(t testing.TB, store object.Store) ledger.Config {
	t.Helper()
	return ledger.Config{
		Store: store, Shard: "dev-1", Writer: "server-1",
		CachePath: filepath.Join(t.TempDir(), "cache.db"), Concurrency: 32, Logger: slog.New(slog.DiscardHandler),
	}
}

func open(t testing.TB, cfg ledger.Config) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeLedger(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func load(t testing.TB, l *ledger.Ledger) ledger.Stats {
	t.Helper()
	stats, err := l.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

func create(t testing.TB, w *ledger.Writer, n int) fleet.Instance {
	t.Helper()
	i, err := w.Create(t.Context(), pending(n))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func move(to fleet.Phase) func(*fleet.Instance) error {
	return func(i *fleet.Instance) error { i.Phase = to; return nil }
}

func update(t testing.TB, w *ledger.Writer, n int, to fleet.Phase) fleet.Instance {
	t.Helper()
	i, err := w.Update(t.Context(), newID(n), move(to))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestLife(t *testing.T) {
	store := mem.New(mem.Config{HashETags: true})
	l := open(t, config(t, store))
	defer closeLedger(t, l)
	w := l.Lead(term{epoch: 7})
	if i := create(t, w, 1); i.Epoch != 7 || i.Rev != 1 || i.Writer != "server-1" {
		t.Errorf("created: %+v", i)
	}
	for n, phase := range []fleet.Phase{fleet.Running, fleet.Draining, fleet.Deleting, fleet.Deleted} {
		if err := w.Remove(t.Context(), newID(1)); !errors.Is(err, ledger.ErrPhase) {
			t.Errorf("remove before the end: %v", err)
		}
		i := update(t, w, 1, phase)
		stored, err := l.Fetch(t.Context(), "default", newID(1))
		if err != nil || stored.Phase != phase || stored.Rev != uint64(n+2) || i.Rev != stored.Rev {
			t.Errorf("stored: %+v, %v", stored, err)
		}
	}
	if err := w.Remove(t.Context(), newID(1)); err != nil {
		t.Error(err)
	}
	if _, ok := l.Get(newID(1)); ok || len(l.Instances()) != 0 || len(l.Group(pending(1).GroupKey())) != 0 {
		t.Error("something is left after the removal")
	}
	if _, err := l.Fetch(t.Context(), "default", newID(1)); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("fetch: %v", err)
	}
	if err := w.Remove(t.Context(), newID(1)); err != nil {
		t.Errorf("removing twice: %v", err)
	}
}

func TestReads(t *testing.T) {
	l := open(t, config(t, mem.New(mem.Config{})))
	defer closeLedger(t, l)
	w := l.Lead(term{epoch: 3})
	for _, n := range []int{2, 3, 1} {
		create(t, w, n)
	}
	other := pending(4)
	other.Group = "db"
	if _, err := w.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if got := ids(l.Instances()); got != "1 2 3 4" {
		t.Errorf("instances: %s", got)
	}
	if got := ids(l.Group(pending(1).GroupKey())); got != "1 2 3" {
		t.Errorf("group: %s", got)
	}
	if got := l.HighestEpoch(); got != 3 {
		t.Errorf("highest epoch: %d", got)
	}
	// Changes after a read are in the next one, in order.
	create(t, w, 0)
	if got := ids(l.Instances()); got != "0 1 2 3 4" {
		t.Errorf("one more: %s", got)
	}
	update(t, w, 2, fleet.Deleted)
	if err := w.Remove(t.Context(), newID(2)); err != nil {
		t.Fatal(err)
	}
	if got := ids(l.Instances()); got != "0 1 3 4" {
		t.Errorf("one less: %s", got)
	}
}

// ids returns the instances' numbers.
func ids(all []fleet.Instance) string {
	var out []byte
	for _, i := range all {
		out = fmt.Append(out, " ", int(i.ID.Time().Sub(start)/time.Second))
	}
	return string(bytes.TrimSpace(out))
}

func TestOpenConfig(t *testing.T) {
	good := config(t, mem.New(mem.Config{}))
	for name, spoil := range map[string]func(*ledger.Config){
		"store":       func(c *ledger.Config) { c.Store = nil },
		"shard":       func(c *ledger.Config) { c.Shard = "Dev 1" },
		"writer":      func(c *ledger.Config) { c.Writer = "" },
		"concurrency": func(c *ledger.Config) { c.Concurrency = 0 },
		"logger":      func(c *ledger.Config) { c.Logger = nil },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := ledger.Open(cfg); err == nil || !bytes.Contains([]byte(err.Error()), []byte(name+":")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func isConflict(err error) bool { return errors.Is(err, ledger.ErrConflict) }
