package fake

import (
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// Op is a kind of call.
type Op string

// Kinds of calls.
const (
	OpCreate Op = "create"
	OpGet    Op = "get"
	OpList   Op = "list"
	OpDelete Op = "delete"

	OpCapacity      Op = "capacity"
	OpImage         Op = "image"
	OpInstanceTypes Op = "instance types"
	OpRegister      Op = "register"
	OpDeregister    Op = "deregister"
	OpTargets       Op = "targets"
)

// Call is one call that reached the world. A call refused by its guard, or whose context had
// already ended, is not logged.
type Call struct {
	Op     Op
	By     string // the name of the handle
	Scope  provider.Scope
	Ref    provider.Ref
	Refs   []provider.Ref // all refs of a Get or Delete; Ref is the first
	Subnet string
	Target string // of load balancer calls

	Start   time.Time // when it was sent
	End     time.Time // time of the reply or of the caller's cancellation; zero: in flight
	Applied bool      // took effect, whatever the reply
	Err     error     // the reply
}

// flight is a call in flight.
type flight struct {
	call  *Call
	fault Fault
	takes time.Duration
	due   time.Time
	lands bool // takes effect even if the caller gives up
}

// startCall logs a call and decides its outcome.
func (w *World) startCall(p *Provider, r request) *flight {
	c := Call{Op: r.op, By: p.name, Scope: p.scope, Ref: r.ref, Refs: r.refs, Subnet: r.subnet, Target: r.target, Start: time.Now()}
	f := &flight{call: &c}
	sent := c
	w.mu.Lock()
	w.log(&c)
	draw := w.dice.draw(r.op, r.ref)
	f.takes = r.takes.draw(draw)
	if f.fault = w.strike(r.op, draw); f.fault.Err == nil && !f.fault.Hang {
		f.fault.Err = w.refuse(r.op, c.Start)
	}
	f.takes += f.fault.Delay
	f.due = c.Start.Add(f.takes)
	f.lands = r.mutates && draw.Float64() < w.cfg.LandsAfterCancel
	w.mu.Unlock()
	if w.cfg.OnCall != nil {
		w.cfg.OnCall(sent)
	}
	return f
}

// callLog is the log of all calls that reached the world. Safe for concurrent use.
type callLog struct {
	mu    sync.Mutex
	calls []*Call // in the order they were sent
}

func (l *callLog) log(c *Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
}

// end logs the reply and returns it. A call that takes effect after its caller gave up keeps
// the end that the caller saw.
func (l *callLog) end(f *flight, applied bool, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.call.Applied = f.call.Applied || applied
	if f.call.End.IsZero() {
		f.call.End, f.call.Err = time.Now(), err
	}
	return err
}

// Calls returns the calls of the given kinds in the order they were sent; all calls if none is
// given.
func (l *callLog) Calls(ops ...Op) []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Call
	for _, c := range l.calls {
		if len(ops) == 0 || slices.Contains(ops, c.Op) {
			out = append(out, *c)
		}
	}
	return out
}

// ForgetCalls empties the log, for long runs.
func (l *callLog) ForgetCalls() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = nil
}

// CreateCalls returns the creates sent for one instance.
func (l *callLog) CreateCalls(id fleet.InstanceID) []Call {
	return slices.DeleteFunc(l.Calls(OpCreate), func(c Call) bool { return c.Ref.ID != id })
}
