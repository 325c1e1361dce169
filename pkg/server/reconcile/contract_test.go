package reconcile_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/reconcile"
	"github.com/nstance/nstance/pkg/server/reconcile/ledgertest"
)

// TestLedger: the fake meets the contract of the real ledger.
func TestLedger(t *testing.T) {
	ledgertest.Run(t, func(*testing.T) ledgertest.Store { return contract{newBucket()} })
}

type contract struct{ *bucket }

func (c contract) Lead(*testing.T) reconcile.Ledger     { return c.lead() }
func (c contract) Place(_ *testing.T, i fleet.Instance) { c.place(i) }
func (c contract) Take(_ *testing.T, i fleet.Instance)  { c.take(i.ID) }
func (c contract) Spoil(_ *testing.T, i fleet.Instance) { c.spoil(i.ID) }

func (c contract) LoseReply() {
	c.fail = func(string, fleet.InstanceID) (bool, error) {
		c.fail = nil
		return true, errStoreDown
	}
}
