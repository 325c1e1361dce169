package election

import (
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// command is one thing that the machine asks its driver to do.
type command interface{ String() string }

// getRecord is answered by machine.gotRecord with the same id.
type getRecord struct {
	id      uint64
	timeout time.Duration
}

// putRecord is answered by machine.putDone with the same id.
type putRecord struct {
	id      uint64
	record  Record
	pre     object.Precondition
	timeout time.Duration
}

// askFirstEpoch is answered by machine.gotFirstEpoch with the same id.
type askFirstEpoch struct{ id uint64 }

// dialPeer is answered by machine.peerLine, or by one of peerClosed, peerRefused
// and peerFailed, with the same id; after a line more may follow.
type dialPeer struct {
	id      uint64
	addr    string
	timeout time.Duration
}

// hangUp ends the connection; what it still reports is ignored.
type hangUp struct{ id uint64 }

// publish tells connected peers what the record is now. The zero value: we hold
// none, connections end.
type publish struct {
	record Record
	etag   object.ETag
}

// askPeers asks all who listen whether they could act; machine.gotAnswer is told of
// each that says so.
type askPeers struct{ id uint64 }

// proveReady finds out whether this server could act, and tells the one that asked.
type proveReady struct {
	leader string
	addr   string
	epoch  uint64
	ask    uint64
	window time.Duration // a write that takes longer is of no use
}

// startLead begins a term; its end is answered by machine.leadReturned.
type startLead struct{ epoch uint64 }

// stopLead ends the term at once.
type stopLead struct{ cause error }

func (c getRecord) String() string { return "get" }
func (c putRecord) String() string {
	pre := "if-match " + string(c.pre.Match())
	if c.pre.Absent() {
		pre = "if-absent"
	}
	return "put " + c.record.brief() + " " + pre
}
func (c askFirstEpoch) String() string { return "ask first epoch" }
func (c dialPeer) String() string      { return "dial " + c.addr }
func (c hangUp) String() string        { return "hang up" }
func (c publish) String() string {
	if c.record.Holder == "" {
		return "publish nothing"
	}
	return "publish " + c.record.brief() + " etag " + string(c.etag)
}
func (c askPeers) String() string   { return fmt.Sprintf("ask peers, question %d", c.id) }
func (c proveReady) String() string { return fmt.Sprintf("prove to %s, question %d", c.leader, c.ask) }
func (c startLead) String() string  { return fmt.Sprintf("start lead of epoch %d", c.epoch) }
func (c stopLead) String() string   { return "stop lead: " + c.cause.Error() }

func (r Record) brief() string {
	s := fmt.Sprintf("%s/e%d/r%d lease %s window %s", r.Holder, r.Epoch, r.Rev, r.LeaseDuration, r.FenceWindow)
	if r.Released {
		s += " released"
	}
	if r.Successor != "" {
		s += " to " + r.Successor
	}
	return s
}
