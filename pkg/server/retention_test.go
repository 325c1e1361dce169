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

// logged writes a batch of the log of certificates, as of now, and returns its key.
func (s *site) logged() string {
	at := time.Now().UTC()
	key := fmt.Sprintf("certlog/dev-1/default.%s%09dZ.%s.json", at.Format("20060102T150405"), at.Nanosecond(), newID(s.t, "knd").StorageKey())
	s.put(key, "{}")
	return key
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

// TestOldObjectsGo: what is kept for a time only goes after it. What is younger, lives, can't be read
// or is not of this kind stays.
func TestOldObjectsGo(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.start().awaitLeading().ends()
		living, _ := s.operator("default")
		s.logged()
		s.removedNow()
		want := []string{living.Key(), "certlog/dev-1/odd.json", "certlog/dev-1/default.20260102T030405Z.odd.json", s.removedNow()[0]}
		s.put(want[1], "{}")
		s.put(want[2], "{}")
		s.put(want[3], "damaged")
		time.Sleep(399 * 24 * time.Hour)
		want = append(want, s.logged())
		want = append(want, s.removedNow()...)
		// An old name with a young object, such as one that was put back, and the other way round.
		old := fmt.Sprintf("certlog/dev-1/default.19900102T030405000000000Z.%s.json", newID(t, "knd").StorageKey())
		s.put(old, "{}")
		future := fmt.Sprintf("certlog/dev-1/default.20990102T030405000000000Z.%s.json", newID(t, "knd").StorageKey())
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
		have := slices.Concat(s.keys("certlog/"), s.keys(fleet.OperatorPrefix))
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("there are\n%s, want\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestOldObjectsThatMayNotBeDeleted: a bucket that protects operators' records keeps them, and the rest
// goes.
func TestOldObjectsThatMayNotBeDeleted(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.start().awaitLeading().ends()
		s.logged()
		want := s.removedNow()
		time.Sleep(401 * 24 * time.Hour)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbDelete && strings.HasPrefix(r.Key, fleet.OperatorPrefix) {
				return objecttest.Outcome{Fault: objecttest.Refused}
			}
			return objecttest.Outcome{}
		})
		s.start().awaitLeading()
		time.Sleep(3*time.Hour + 10*time.Minute)
		if have := s.keys(fleet.OperatorPrefix); !slices.Equal(have, want) {
			t.Errorf("there are %v, want %v", have, want)
		}
		if have := s.keys("certlog/"); len(have) != 0 {
			t.Errorf("the log has %v", have)
		}
	})
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
