package provider_test

import (
	"context"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

// bare has nothing but what every provider has.
type bare struct{ provider.Provider }

// movable moves the leader's address, whatever it was configured with.
type movable struct{ bare }

func (movable) Assign(context.Context) error        { return nil }
func (movable) Check(context.Context) (bool, error) { return true, nil }

// configured has the method, and moves an address only if it was given one.
type configured struct {
	movable
	given bool
}

func (c configured) LeaderNetwork() (provider.LeaderNetwork, bool) { return c.movable, c.given }

// wrapper passes on what the provider inside has.
type wrapper struct{ provider.Provider }

func (w wrapper) LeaderNetwork() (provider.LeaderNetwork, bool) {
	return provider.LeaderNetworkOf(w.Provider)
}

func TestOptionalParts(t *testing.T) {
	for name, c := range map[string]struct {
		p    provider.Provider
		want bool
	}{
		"none":                        {bare{}, false},
		"the interface itself":        {movable{}, true},
		"configured":                  {configured{given: true}, true},
		"not configured":              {configured{}, false},
		"wrapped":                     {wrapper{movable{}}, true},
		"wrapped, and not configured": {wrapper{configured{}}, false},
		"wrapped twice":               {wrapper{wrapper{configured{given: true}}}, true},
	} {
		if n, ok := provider.LeaderNetworkOf(c.p); ok != c.want || ok && n == nil {
			t.Errorf("%s: %v, %v; want %v", name, n, ok, c.want)
		}
	}
	if _, ok := provider.WatcherOf(configured{given: true}); ok {
		t.Error("a part that is not there")
	}
}
