package observe_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
)

// TestSeeSharedAddress: a list that shows what is known costs little, even if all machines share an
// address, as those of one host do.
func TestSeeSharedAddress(t *testing.T) {
	const machines = 1000
	known := records{}
	s := observe.New(known, true, began)
	list := func(asked float64) (answers []observe.Answer) {
		for n := range machines {
			a := shows(known.running(fleet.InstanceID(fmt.Sprint("i", n)), 0), provider.StateRunning, asked)
			a.VM.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
			answers = append(answers, a)
		}
		return answers
	}
	s.See(at(1), list(1)...)
	again := list(2)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.See(at(2), again...)
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / machines; each > 1<<10 {
		t.Errorf("a list that changes nothing allocates %d bytes for each machine", each)
	}
	if n := len(s.Addressed(netip.MustParseAddr("192.0.2.1"))); n != machines {
		t.Errorf("%d machines have the address, want %d", n, machines)
	}
}
