package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// logged writes a batch of the log of certificates, as of now, of one that ends after a time, and returns
// its key.
func (s *site) logged(tenant string, life time.Duration) string {
	key := logKey(s.t, tenant, time.Now().Add(life))
	s.put(key, "whatever")
	return key
}

// logKey returns the key of a batch that ends at a time.
func logKey(t *testing.T, tenant string, end time.Time) string {
	t.Helper()
	stamp := func(at time.Time) string { return at.UTC().Format("20060102T150405") + "000000000Z" }
	return fmt.Sprintf("certlog/dev-1/%s.%s.%s.%s.json", tenant, stamp(end), stamp(time.Now()), newID(t, "knd").StorageKey())
}

// removedNow writes the record and the tombstone of an operator that is removed now, and returns
// their keys.
func (s *site) removedNow() []string {
	o, _ := s.operator("prod")
	o = o.Remove(o.ID, time.Now())
	body, err := json.Marshal(o)
	if err != nil {
		s.t.Fatal(err)
	}
	keys := []string{o.Key(), fleet.OperatorTombstoneKey(o.Tenant, o.ID)}
	for _, key := range keys {
		s.putSealed(key, string(body))
	}
	return keys
}

// old returns what is left of the log and of the operators.
func (s *site) old() []string {
	have := slices.Concat(s.keys("certlog/"), s.keys(fleet.OperatorPrefix))
	slices.Sort(have)
	return have
}

// expectOld checks what is left of the log and of the operators.
func (s *site) expectOld(want []string) {
	s.t.Helper()
	slices.Sort(want)
	if have := s.old(); !slices.Equal(have, want) {
		s.t.Errorf("there are\n%s, want\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

const aDay = 24 * time.Hour

// awaitSweep waits until the first sweep of the old objects of a term is over.
func awaitSweep() { time.Sleep(3*time.Hour + 10*time.Minute) }

// TestOldObjectsGo: what is kept for a time only goes after it. What is younger, lives, is valid, can't be
// read or is not of this kind stays.
func TestOldObjectsGo(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.start().awaitLeading().ends()
		living, _ := s.operator("default")
		s.logged("default", time.Hour)
		want := []string{
			living.Key(), "certlog/dev-1/odd.json", "certlog/dev-1/default.20260102T030405Z.odd.json",
			s.logged("default", 10*365*aDay), s.logged("default", 20*aDay), s.logged("another", time.Hour),
		}
		s.put(want[1], "{}")
		s.put(want[2], "{}")
		s.logged("prod", time.Hour)
		time.Sleep(399 * aDay)
		want = append(want, s.logged("default", time.Hour))
		// An old name with a young object, such as one that was put back, and the other way round.
		old := logKey(t, "default", time.Date(1990, 1, 2, 3, 4, 5, 0, time.UTC))
		future := logKey(t, "default", time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC))
		s.put(old, "{}")
		s.put(future, "{}")
		want = append(want, old, future)
		time.Sleep(30 * time.Hour)

		s.start().awaitLeading()
		before := s.keys("certlog/")
		time.Sleep(2*time.Hour + 50*time.Minute)
		if have := s.keys("certlog/"); !slices.Equal(have, before) {
			t.Errorf("right after the takeover: %v", have)
		}
		time.Sleep(20 * time.Minute)
		s.expectOld(want)
	})
}

// TestRemovedOperatorsGo: an operator's record and tombstone go together, and only if both say that it was
// removed long ago.
func TestRemovedOperatorsGo(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.start().awaitLeading().ends()
		s.removedNow()
		aloneTombstone, aloneRecord := s.removedNow(), s.removedNow()
		damaged, damagedTombstone, restored := s.removedNow(), s.removedNow(), s.removedNow()
		want := slices.Concat(damaged, damagedTombstone, restored)
		s.delete(aloneTombstone[0])
		s.delete(aloneRecord[1])
		s.put(damaged[0], "damaged")
		s.put(damagedTombstone[1], "damaged")
		// The record was put back as it was before the removal.
		o, _ := s.operator("prod")
		body, err := json.Marshal(o.Remove(o.ID, time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		s.putSealed(fleet.OperatorTombstoneKey(o.Tenant, o.ID), string(body))
		want = append(want, o.Key(), fleet.OperatorTombstoneKey(o.Tenant, o.ID))
		time.Sleep(399 * aDay)
		want = append(want, s.removedNow()...)
		s.put(restored[0], s.get(restored[0]))
		time.Sleep(2 * aDay)
		s.start().awaitLeading()
		awaitSweep()
		s.expectOld(want)
	})
}

// TestAnOperatorThatIsPutBackMeanwhile stays, although it was listed as old.
func TestAnOperatorThatIsPutBackMeanwhile(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.start().awaitLeading().ends()
		want := s.removedNow()
		time.Sleep(401 * aDay)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbGet && r.Key == want[0] {
				s.put(want[0], s.get(want[0]))
			}
			return objecttest.Outcome{}
		})
		s.start().awaitLeading()
		awaitSweep()
		s.expectOld(want)
	})
}

// TestOldObjectsThatTheStoreRefuses: what the store does not let go, or not even be read, stays, and the rest
// goes.
func TestOldObjectsThatTheStoreRefuses(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.start().awaitLeading().ends()
		batch := s.logged("default", time.Hour)
		protected, unreadable, protectedRecord := s.removedNow(), s.removedNow(), s.removedNow()
		s.logged("default", time.Hour)
		s.removedNow()
		time.Sleep(401 * aDay)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			kept := append([]string{batch, protectedRecord[0]}, protected...)
			if r.Key == unreadable[0] || r.Verb == object.VerbDelete && slices.Contains(kept, r.Key) {
				return objecttest.Outcome{Fault: objecttest.Refused}
			}
			return objecttest.Outcome{}
		})
		s.start().awaitLeading()
		awaitSweep()
		s.expectOld(slices.Concat(protected, unreadable, protectedRecord, []string{batch}))
	})
}

// TestOldObjectsOfOthersGo: a batch that can't be deleted holds up neither its tenant's others nor other tenants'.
func TestOldObjectsOfOthersGo(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.start().awaitLeading().ends()
		stuck := s.logged("default", time.Hour)
		s.logged("default", 2*time.Hour)
		s.logged("prod", time.Hour)
		s.removedNow()
		time.Sleep(401 * aDay)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Key == stuck {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		s.start().awaitLeading()
		awaitSweep()
		s.expectOld([]string{stuck})
	})
}

// TestOldObjectsGoAfterErrors: errors of the store put off the rest for an hour.
func TestOldObjectsGoAfterErrors(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.start().awaitLeading().ends()
		for range 10 {
			s.logged("default", time.Hour)
			s.removedNow()
		}
		time.Sleep(401 * aDay)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbDelete && !strings.HasPrefix(r.Key, "probe/") {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		s.start().awaitLeading()
		awaitSweep()
		if have := s.old(); len(have) != 30 {
			t.Errorf("%d objects are left, want 30", len(have))
		}
		s.store.Set(nil)
		time.Sleep(time.Hour)
		s.expectOld(nil)
	})
}

// TestTheLogIsKept: forever if the config says so, and for as long as it says.
func TestTheLogIsKept(t *testing.T) {
	for name, text := range map[string]string{
		"off":       `"garbage_collection": { "certificate_log_retention": "" }`,
		"ten years": `"garbage_collection": { "certificate_log_retention": "3650d" }`,
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T) {
				s := newSite(t, with("MORE", text))
				s.start().awaitLeading().ends()
				want := []string{s.logged("default", time.Hour)}
				time.Sleep(401 * aDay)
				s.start().awaitLeading()
				awaitSweep()
				s.expectOld(want)
			})
		})
	}
}

// TestDeletedRecordsAreTold: status and preview say what the retention of deleted records keeps.
func TestDeletedRecordsAreTold(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, calm)
		p.scale(0)
		p.awaitSize("web", 0)
		time.Sleep(time.Minute)
		is := p.configStatus().GetDeletedRecords()
		if is.GetKept() != 2 || is.GetExpected() != 2 || is.GetExpectedBytes() == 0 {
			t.Errorf("kept: %v, want 2", is)
		}
		s.config["MORE"] = `"garbage_collection": { "deleted_record_retention": "10h" }`
		s.putConfig("dev-1")
		resp, err := p.operator("default").PreviewConfig(within(t), &nstancev1.PreviewConfigRequest{})
		if is := resp.GetPreview().GetDeletedRecords(); err != nil || is.GetKept() != 2 || is.GetExpected() != 40 {
			t.Errorf("previewed: %v, %v, want 2 and 40", is, err)
		}
	})
}
