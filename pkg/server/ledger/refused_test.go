package ledger_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
)

// TestRefusedRecords: a record that the store refuses to return is as a damaged one, and read again;
// only if several are refused, and no other is there, it is the store that fails.
func TestRefusedRecords(t *testing.T) {
	for _, c := range []struct {
		records, refused int
		fails            bool
	}{{1, 1, false}, {3, 1, false}, {3, 2, false}, {2, 2, true}, {3, 3, true}} {
		store, cfg, _ := shard(t, c.records)
		var keys []string
		for n := range c.refused {
			keys = append(keys, key(n))
		}
		refuses := func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbGet && slices.Contains(keys, r.Key) {
				return objecttest.Outcome{Fault: objecttest.Refused}
			}
			return objecttest.Outcome{}
		}
		faults := objecttest.NewFaults(store, refuses)
		cfg.Store, cfg.CachePath = faults, ""
		l := open(t, cfg)
		for what, read := range map[string]func() error{
			"load":   func() error { _, err := l.Load(t.Context()); return err },
			"relist": func() error { _, _, err := l.Relist(t.Context()); return err },
		} {
			if err := read(); errors.Is(err, object.ErrRefused) != c.fails || (err != nil) != c.fails {
				t.Errorf("%s of %d, %d refused: %v", what, c.records, c.refused, err)
			}
		}
		if n, m := len(l.Instances()), len(l.Malformed()); n != c.records-c.refused || m != c.refused {
			t.Errorf("%d of %d refused: %d are known, %d damaged", c.refused, c.records, n, m)
		}
		faults.Set(nil)
		if s := load(t, l); len(l.Instances()) != c.records || len(s.Malformed) > 0 {
			t.Errorf("%d of %d, once they are returned: %v", c.refused, c.records, s)
		}
		closeLedger(t, l)
	}
}

// TestKnownRecordIsRefused: a record that the store refuses to return later is kept as it was known.
func TestKnownRecordIsRefused(t *testing.T) {
	store, cfg, _ := shard(t, 2)
	faults := objecttest.NewFaults(store, nil)
	cfg.Store = faults
	l := open(t, cfg)
	defer closeLedger(t, l)
	load(t, l)
	faults.Set(func(r objecttest.Request) objecttest.Outcome {
		if r.Verb == object.VerbGet && r.Key == key(1) {
			return objecttest.Outcome{Fault: objecttest.Refused}
		}
		return objecttest.Outcome{}
	})
	for range 2 {
		if err := l.Reread(t.Context(), "default", newID(1)); err != nil {
			t.Fatal(err)
		}
		if got := ids(l.Instances()); got != "0 1" || len(l.Malformed()) != 1 {
			t.Errorf("instances %s, damaged %v", got, l.Malformed())
		}
	}
	if _, _, err := l.Find(t.Context(), "default", newID(1)); err != nil {
		t.Errorf("what is known: %v", err)
	}
	elsewhere := cfg
	elsewhere.CachePath = ""
	other := open(t, elsewhere)
	defer closeLedger(t, other)
	load(t, other)
	if _, ok, err := other.Find(t.Context(), "default", newID(1)); ok || !errors.Is(err, object.ErrRefused) {
		t.Errorf("found %v, %v", ok, err)
	}
}
