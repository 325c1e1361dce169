package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/schedule"
)

// maxSteps limits the steps of instances that run at the same time. It is more than maxWrites, so that there
// is always one that can write.
const maxSteps = 2 * maxWrites

// steps runs the steps of instances and groups in workers. Those of instances wait in a queue, which costs
// less than a goroutine for each instance of a large group.
type steps struct {
	observed *observe.State
	schedule *schedule.Schedule
	reports  *reporter
	workers  *sync.WaitGroup

	mu      sync.Mutex
	queue   []func()
	running int // workers
}

// stepBackoff is the back-off of cheap steps of one instance that failed in the store or the
// provider.
func stepBackoff() retry.Backoff {
	return retry.Backoff{First: 500 * time.Millisecond, Limit: 15 * time.Second}
}

// work runs one step of an instance or, without an id, an edit of the group in a worker: one
// at a time for each, and with back-off after a failure. The step must not wait for the provider.
func (s *steps) work(ctx context.Context, key fleet.GroupKey, id fleet.InstanceID, now time.Time, step func() error) {
	s.begin(ctx, key, id, now, false, func(ended func(error)) { ended(step()) })
}

// begin is work for a step that need not end when the function returns. It calls ended once, at the end. begin
// reports false if the step can't begin now. If a caller waits for it, it does not wait in the queue.
func (s *steps) begin(
	ctx context.Context, key fleet.GroupKey, id fleet.InstanceID, now time.Time, awaited bool, step func(ended func(error)),
) bool {
	ok, notBefore := s.observed.StartStep(key, id, now)
	if !ok {
		s.schedule.MarkAt(key, notBefore)
		return false
	}
	run := func() { step(func(err error) { s.end(ctx, key, id, err) }) }
	if awaited || id == "" { // an edit waits for others of its tenant, for which no instance shall wait
		s.workers.Go(run)
		return true
	}
	s.enqueue(run)
	return true
}

func (s *steps) end(ctx context.Context, key fleet.GroupKey, id fleet.InstanceID, err error) {
	repeated := s.observed.EndStep(key, id, err, stepBackoff().Delay, time.Now())
	s.schedule.Mark(key)
	switch {
	case id == "" && err != nil:
		err = problems.Because(problems.ReasonStorage, fmt.Errorf("edit group %s: %w", key, err))
	case repeated:
		return // reported already
	}
	s.reports.changed(key, id)
	s.reports.fail(ctx, err, key, id)
}

// enqueue runs a function in a worker, in the order of the calls.
func (s *steps) enqueue(run func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, run)
	if s.running < maxSteps {
		s.running++
		s.workers.Go(s.runQueue)
	}
}

// runQueue runs what is queued, until nothing is.
func (s *steps) runQueue() {
	for run := s.next(); run != nil; run = s.next() {
		run()
	}
}

// next returns what a worker does next; nil ends it.
func (s *steps) next() (run func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue = nil
		s.running--
		return nil
	}
	run, s.queue[0] = s.queue[0], nil
	s.queue = s.queue[1:]
	return run
}
