package reconcile

import "github.com/nstance/nstance/pkg/provider/paced"

// Load is what a loop has to do, and what slows it down.
type Load struct {
	Due       int                // groups to decide about
	Queued    int                // groups whose creates wait for their turn
	Creating  int                // creates in progress
	Changes   float64            // creates and deletes per second that the provider accepts; 0: it does not throttle
	Throttled []paced.Throttling // the kinds of calls that it throttles
}

// Load returns the current load.
func (l *Loop) Load() Load {
	queued, creating := l.launcher.load()
	return Load{
		Due: l.schedule.Due(), Queued: queued, Creating: creating, Changes: l.cloud.Changes(), Throttled: l.cloud.Throttled(),
	}
}

// load returns the number of groups with waiting creates, and of creates in progress.
func (l *launcher) load() (queued, creating int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.begun {
		if x.active {
			creating++
		}
	}
	return l.queue.Waiting(), creating
}
