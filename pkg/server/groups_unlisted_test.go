package server_test

import (
	"strings"
	"testing"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestUnlistedGroupWithoutInstances: a new leader finds a group record that no listing has,
// although none of its instances lives.
func TestUnlistedGroupWithoutInstances(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, listing := elevenOf(t)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "job", Size: ptr(int32(0))}); err != nil {
			t.Fatal(err)
		}
		s.awaitEmpty("default", "job")
		listing.Hide(func(key string) bool { return strings.HasPrefix(key, "groups/") })
		p.ends()
		q := s.successor() // its cache is empty
		time.Sleep(10 * time.Second)
		if g := s.mustGroup(q, "job"); condition(g, missingGroup) != nil || g.GetSize() != 0 || g.GetTemplate() != "knd" {
			t.Errorf("job is %v", g)
		}
	})
}
