package leader

import (
	"errors"
	"testing"

	"github.com/nstance/nstance/pkg/rpc"
)

// TestTally: creations under way count as if they were recorded, each tenant's for
// itself, and only as long as they last.
func TestTally(t *testing.T) {
	var all tally
	leave, err := all.enter("default", maxOnDemand-1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.enter("default", maxOnDemand-1); !errors.Is(err, rpc.Exhausted) {
		t.Errorf("one more than allowed: %v", err)
	}
	other, err := all.enter("prod", maxOnDemand-1)
	if err != nil {
		t.Errorf("another tenant: %v", err)
	}
	leave()
	other()
	if leave, err = all.enter("default", maxOnDemand-1); err != nil {
		t.Errorf("after the other ended: %v", err)
	}
	leave()
	if len(all.under) > 0 {
		t.Errorf("left over: %v", all.under)
	}
}
