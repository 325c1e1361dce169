package server_test

import (
	"slices"
	"testing"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestTombstonesArePruned: the tombstone of a group that was deleted long ago is removed. If the
// group is recreated, it has a later revision. Recent tombstones stay, and so do those of static
// groups.
func TestTombstonesArePruned(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		old := `{ "epoch": 0, "rev": 1, "writer": "w", "deleted_at": "1999-12-01T00:00:00Z", "revision": 9000000 }`
		s.put(groupAt("default", "job"), old)
		s.put(webAt, old)
		p := s.start()
		s.populate(p)
		p.awaitLeading()
		client := p.operator("default")
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "late", Template: ptr("knd"), Size: ptr(int32(0))}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.DeleteGroup(within(t), &nstancev1.DeleteGroupRequest{Key: "late"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Hour)
		keys := s.keys("groups/" + shardID + "/")
		if want := []string{groupAt("default", "late"), webAt}; !slices.Equal(keys, want) {
			t.Errorf("after hours there are %v, want %v", keys, want)
		}
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "job", Template: ptr("knd"), Size: ptr(int32(0))}); err != nil {
			t.Fatal(err)
		}
		if r := s.groupRecord("default", "job"); r.Revision <= 9000000 {
			t.Errorf("made anew: %+v", r)
		}
		if err := s.forgotten("default", "late"); err != nil {
			t.Error(err)
		}
	})
}
