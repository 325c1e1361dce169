package election

import (
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// command is a request of the machine to its driver.
type command interface{ String() string }

// getRecord reads the record; the result is machine.gotRecord with the same id.
type getRecord struct {
	id      uint64
	timeout time.Duration
}

// putRecord writes the record; the result is machine.putDone with the same id.
type putRecord struct {
	id      uint64
	record  Record
	pre     object.Precondition
	timeout time.Duration
}

// askFirstEpoch results in machine.gotFirstEpoch with the same id.
type askFirstEpoch struct{ id uint64 }

// dialPeer results in machine.peerLine, peerClosed, peerRefused or peerFailed with the same id;
// further events may follow a line.
type dialPeer struct {
	id      uint64
	addr    string
	timeout time.Duration
}

// hangUp closes the connection; later events of it are ignored.
type hangUp struct{ id uint64 }

// publish sends the current record to connected peers. The zero value means that this server
// holds none, and ends connections.
type publish struct {
	record Record
	etag   object.ETag
}

// askPeers asks all connected peers whether they could act; each answer results in
// machine.gotAnswer.
type askPeers struct{ id uint64 }

// proveReady checks whether this server could act, and answers the leader that asked.
type proveReady struct {
	leader string
	addr   string
	epoch  uint64
	ask    uint64
	window time.Duration // a slower write does not count
}

// startLead starts a term; its end results in machine.leadReturned.
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
