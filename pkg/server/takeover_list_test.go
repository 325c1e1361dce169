package server_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// slowListing is a store whose listings take long.
type slowListing struct{ object.Store }

func (s slowListing) List(ctx context.Context, prefix, token string) (object.Page, error) {
	time.Sleep(2 * time.Second)
	return s.Store.List(ctx, prefix, token)
}

// TestTakeoverListsWhileItReads: a new leader lists the provider's VMs while it reads the records.
func TestTakeoverListsWhileItReads(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.world = fake.New(fake.Config{ListLatency: fake.Fixed(2 * time.Second)})
		s.store = objecttest.NewFaults(slowListing{s.inner}, nil)
		p := s.start().awaitLeading() // the records are read
		began := time.Now()
		eventually(t, "it has taken over", func() error {
			if p.log.count("took over") == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		if took := time.Since(began); took > time.Second {
			t.Errorf("the list came %s after the records, want it at the same time", took)
		}
	})
}
