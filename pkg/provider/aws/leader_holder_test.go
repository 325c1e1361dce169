package aws_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

// TestLeaderOtherVPC: another VPC may have the same addresses, which are not touched.
func TestLeaderOtherVPC(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		s := newShard(t, m, nil)
		a, b := s.host(t), s.host(t)
		// This holds also where it would be refused, as an interface's primary address, and
		// untagged.
		eni := s.plant(t, strange, m.ipv4, m.ipv6, nil)
		all := s.Interfaces()
		before := all[slices.IndexFunc(all, func(i awstest.Interface) bool { return i.ID == eni })].Addresses
		s.assign(t, a)
		s.assign(t, b)
		all = s.Interfaces()
		if now := all[slices.IndexFunc(all, func(i awstest.Interface) bool { return i.ID == eni })].Addresses; !slices.Equal(now, before) {
			t.Errorf("the stranger has %v, want %v", now, before)
		}
	})
}

// TestLeaderOthersAddress: an address held by something else than this shard's servers is not taken
// away.
func TestLeaderOthersAddress(t *testing.T) {
	for name, tag := range map[string]struct{ key, value string }{
		"no tags": {"", ""}, "another cluster's": {provider.TagClusterID, "d"}, "another shard's": {provider.TagShard, "t"},
	} {
		for _, addr := range []string{leader4, leader6} {
			t.Run(name+" "+addr, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := mode{ipv4: netip.MustParseAddr(addr)}
					if m.ipv4.Is6() {
						m.ipv4, m.ipv6 = netip.Addr{}, m.ipv4
					}
					s := newShard(t, m, nil)
					has := tags()
					has[tag.key] = tag.value
					if tag.key == "" {
						has = nil
					}
					holder := s.host(t)
					s.assign(t, holder)
					eni := s.primary(holder.id).ID
					if err := s.Tag(eni, has); err != nil {
						t.Fatal(err)
					}
					before := len(s.changes())
					err := s.host(t).Assign(t.Context())
					if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), eni) || !strings.Contains(err.Error(), tag.key) {
						t.Errorf("assign: %v; want that it names %s and %q", err, eni, tag.key)
					}
					if n := len(s.changes()) - before; n != 0 {
						t.Errorf("it made %d changes", n)
					}
					s.heldBy(t, holder.id)
				})
			})
		}
	}
}
