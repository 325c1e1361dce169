package server_test

import (
	"testing"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
)

// TestSizeOverridesAreListed: a size that overrides the static one is listed by the status and
// by a refresh, until a reset drops it or the config has the same size.
func TestSizeOverridesAreListed(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		is := func(when string, have []*nstancev1.SizeOverride, want ...*nstancev1.SizeOverride) {
			t.Helper()
			same := len(have) == len(want)
			for n := 0; same && n < len(want); n++ {
				same = proto.Equal(have[n], want[n])
			}
			if !same {
				t.Errorf("%s: %v, want %v", when, have, want)
			}
		}
		web := func(static, size int32) *nstancev1.SizeOverride {
			return &nstancev1.SizeOverride{Tenant: "default", Group: "web", StaticSize: static, Size: size}
		}
		is("at first", p.configStatus().GetSizeOverrides())
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		is("after a scale", p.configStatus().GetSizeOverrides(), web(2, 3))
		is("by a refresh of the same text", p.refreshes(unchanged).GetSizeOverrides(), web(2, 3))
		s.replace(`"size": 2`, `"size": 5`)
		is("by a refresh", p.refreshes(updated).GetSizeOverrides(), web(5, 3))
		is("after a refresh", p.configStatus().GetSizeOverrides(), web(5, 3))
		if _, err := p.operator("default").ResetGroup(within(t), &nstancev1.ResetGroupRequest{Key: "web"}); err != nil {
			t.Fatal(err)
		}
		is("after a reset", p.configStatus().GetSizeOverrides())
		p.awaitSize("web", 5)
	})
}
