package shardstest

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"
)

// maxCalls bounds the requests kept per method.
const maxCalls = 10_000

// faults are the injected faults of a shard's server, and the requests it received. Safe for
// concurrent use.
type faults struct {
	mu     sync.Mutex
	hang   chan struct{}            // closed when calls are answered again; nil: not hanging
	mute   chan struct{}            // likewise for streams
	hold   map[string]chan struct{} // likewise for a method's answers
	fail   map[string]*failure
	lose   map[string]*failure
	called map[string][]proto.Message
}

type failure struct {
	err  error
	left int // calls; negative: all
}

func newFaults() *faults {
	return &faults{
		hold: map[string]chan struct{}{}, fail: map[string]*failure{}, lose: map[string]*failure{},
		called: map[string][]proto.Message{},
	}
}

// Hang blocks all calls and streams until Unhang. Connections stay.
func (s *Shard) Hang() { s.faults.close(&s.faults.hang) }

// Unhang ends Hang; blocked calls proceed.
func (s *Shard) Unhang() { s.faults.open(&s.faults.hang) }

// Mute blocks all streams until Unmute, while calls are answered. Then streams go on with the
// current state.
func (s *Shard) Mute() { s.faults.close(&s.faults.mute) }

// Unmute ends Mute.
func (s *Shard) Unmute() { s.faults.open(&s.faults.mute) }

// silent reports whether streams are blocked.
func (f *faults) silent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hang != nil || f.mute != nil
}

// Hold makes calls of a method take effect, but delays their answers until release is called.
func (s *Shard) Hold(method string) (release func()) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	held := make(chan struct{})
	s.faults.hold[method] = held
	return sync.OnceFunc(func() {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		close(held)
		delete(s.faults.hold, method)
	})
}

// Fail makes the next n calls of a method, such as UpsertGroup or WatchGroups, return an error
// without effect; n < 0: all further calls, 0: none. Kinds of package rpc and gRPC statuses
// reach the caller.
func (s *Shard) Fail(method string, err error, n int) { s.faults.set(s.faults.fail, method, err, n) }

// Lose makes the next n calls of a method take effect and then return an error, as if the
// answer were lost; n as for Fail.
func (s *Shard) Lose(method string, err error, n int) { s.faults.set(s.faults.lose, method, err, n) }

// Calls returns the requests of all calls of a method so far, including failed ones. The last
// 10,000 are kept.
func (s *Shard) Calls(method string) []proto.Message {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return append([]proto.Message(nil), s.faults.called[method]...)
}

func (f *faults) set(of map[string]*failure, method string, err error, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of[method] = &failure{err: err, left: n}
}

func (f *faults) take(of map[string]*failure, method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := of[method]
	if one == nil || one.left == 0 {
		return nil
	}
	if one.left > 0 {
		one.left--
	}
	return one.err
}

// close closes a gate; callers wait there.
func (f *faults) close(gate *chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *gate == nil {
		*gate = make(chan struct{})
	}
}

func (f *faults) open(gate *chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *gate != nil {
		close(*gate)
		*gate = nil
	}
}

// pass waits until a gate is open.
func (f *faults) pass(ctx context.Context, gate func() chan struct{}) error {
	for {
		f.mu.Lock()
		closed := gate()
		f.mu.Unlock()
		if closed == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-closed:
		}
	}
}

// enter runs at the start of a call.
func (f *faults) enter(ctx context.Context, method string, req proto.Message) error {
	f.mu.Lock()
	all := append(f.called[method], req)
	f.called[method] = all[max(0, len(all)-maxCalls):]
	f.mu.Unlock()
	if err := f.pass(ctx, func() chan struct{} { return f.hang }); err != nil {
		return err
	}
	return f.take(f.fail, method)
}

// leave runs after a call has taken effect.
func (f *faults) leave(ctx context.Context, method string) error {
	if err := f.pass(ctx, func() chan struct{} { return f.hold[method] }); err != nil {
		return err
	}
	return f.take(f.lose, method)
}

// speak waits until streams may send.
func (f *faults) speak(ctx context.Context) error {
	if err := f.pass(ctx, func() chan struct{} { return f.hang }); err != nil {
		return err
	}
	return f.pass(ctx, func() chan struct{} { return f.mute })
}
