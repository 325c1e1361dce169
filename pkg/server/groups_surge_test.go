package server_test

import (
	"slices"
	"strings"
	"testing"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// TestUpsertMaxSurge: a group's own surge is durable, for static and dynamic groups, until it is
// reset; an invalid one is refused with its field, and changes nothing.
func TestUpsertMaxSurge(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		before, err := p.group("web")
		if err != nil || before.GetMaxSurge() != "1" {
			t.Fatalf("group web is %v, %v", before, err)
		}
		for _, text := range []string{"0", "101%", "many"} {
			_, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", MaxSurge: &text})
			if refused(t, err, codes.InvalidArgument); !slices.Equal(fields(err), []string{"max_surge"}) {
				t.Errorf("%q: violations of %v", text, fields(err))
			}
		}
		if keys := s.keys("groups/" + shardID + "/"); len(keys) > 0 {
			t.Errorf("refusals wrote %v", keys)
		}
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "batch", Template: ptr("knd"), Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"web", "batch"} {
			g, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: key, MaxSurge: ptr("50%")})
			if err != nil || g.GetMaxSurge() != "50%" || g.GetEtag() == before.GetEtag() {
				t.Errorf("answered %v, %v", g, err)
			}
		}
		for _, key := range []string{"web", "batch"} {
			if text := s.get(groupAt("default", key)); !strings.Contains(text, `"max_surge":"50%"`) {
				t.Errorf("stored: %s", text)
			}
		}

		// Another server, with only the bucket, has it too.
		p.ends()
		q := s.successor()
		q.awaitSize("web", 2)
		for _, key := range []string{"web", "batch"} {
			if g, err := q.group(key); err != nil || g.GetMaxSurge() != "50%" {
				t.Errorf("the successor has %v, %v", g, err)
			}
			if g, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: key, MaxSurge: ptr("")}); err != nil || g.GetMaxSurge() != "1" {
				t.Errorf("taken back: %v, %v", g, err)
			}
		}
	})
}
