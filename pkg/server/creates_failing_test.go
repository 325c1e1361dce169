package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
)

// TestCreatesFailing: a group whose creates fail reports the provider's error until one
// succeeds.
func TestCreatesFailing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.world.FailNext(fake.OpCreate, 1000, fake.Fault{Err: fmt.Errorf("%w: no more of type huge", provider.ErrQuota)})
		p := s.start().awaitLeading()
		eventually(t, "the group tells", func() error { return p.troubled("creates failed since") })
		g, err := p.group("web")
		if err != nil {
			t.Fatal(err)
		}
		if c := condition(g, "CreatesFailing"); c.GetReason() != "QuotaUsedUp" || !strings.Contains(c.GetMessage(), "no more of type huge") {
			t.Errorf("it says %v", c)
		}
		if c := condition(g, "Degraded"); c != nil {
			t.Errorf("it says twice what is wrong: %v", c)
		}
		s.world.Mend()
		s.populate(p)
		p.awaitSize("web", 2)
		if p.troubled("creates failed since") == nil {
			t.Error("the group still tells")
		}
	})
}
