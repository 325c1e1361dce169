package ondemand

import (
	"errors"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// TestTally: creations under way count as if they were recorded, by tenant, and only while they
// last.
func TestTally(t *testing.T) {
	var all tally
	maxOnDemand := config.MaxOnDemand
	have := func(n int) func() ledger.Count { return func() ledger.Count { return ledger.Count{Active: n} } }
	leave, err := all.enter("default", have(maxOnDemand-1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.enter("default", have(maxOnDemand-1), nil); !errors.Is(err, rpc.Exhausted) {
		t.Errorf("one more than allowed: %v", err)
	}
	other, err := all.enter("prod", have(maxOnDemand-1), nil)
	if err != nil {
		t.Errorf("another tenant: %v", err)
	}
	leave()
	other()
	if leave, err = all.enter("default", have(maxOnDemand-1), nil); err != nil {
		t.Errorf("after the other ended: %v", err)
	}
	leave()
	two := 2
	if leave, err = all.enter("prod", have(1), &two); err != nil {
		t.Errorf("the second of two: %v", err)
	}
	const words = `the quota of tenant "prod" is exceeded: on_demand: at most 2 are allowed, there are 2, and with this 3`
	if _, err := all.enter("prod", have(1), &two); !errors.Is(err, rpc.Exhausted) || !strings.Contains(err.Error(), words) {
		t.Errorf("the third of two: %v", err)
	}
	leave()
	if len(all.under) > 0 {
		t.Errorf("left over: %v", all.under)
	}
}
