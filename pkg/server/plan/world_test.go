package plan_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// world is a small model of a shard with one group, in simulated time: a store
// of records, a provider, agents, and a leader that applies the decisions of plan.Next,
// with delays, failures and lost outcomes. It is deterministic for a seed.
type world struct {
	rng    *rand.Rand
	now    time.Time
	events events
	seq    int
	ids    uint64

	group    fleet.Group
	settings plan.Settings
	grant    int // surge that the shard allows the group
	seen     []plan.Instance
	machines []*machine // sorted by id, without removed ones

	// The leader's memory, lost with its term.
	term     int
	leading  bool
	takeover time.Time
	pace     plan.Pace // of creates, after failures
	failures int       // consecutive
	wakeAt   time.Time

	calm        bool // faults are over
	failCreates bool // every create fails definitely
	forgotten   bool
	acts        int // actions since last reset, without wakes

	problem  string // the first violated invariant
	timeline *strings.Builder
}

// machine is an instance: its record, its VM and agent, and the leader's knowledge of
// them.
type machine struct {
	fleet.Instance
	recorded bool // the record is stored

	made, alive bool      // the VM
	up          bool      // the agent works
	bare        bool      // it has no files yet
	upAt        time.Time // since when it is connected to this leader, if up

	known     plan.VM
	heard     time.Time // the last report before the agent went silent
	away      bool      // the connection is broken
	leaving   time.Time // when the agent reported its shutdown
	notice    *fleet.Notice
	busy      bool
	retryAt   time.Time
	stray     bool
	immediate bool
	judged    bool // its create was counted as a success or failure
}

type event struct {
	at  time.Time
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func newWorld(seed uint64, trace bool) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 0)),
		now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), grant: 1,
		settings: plan.Settings{
			ReportInterval: 10 * time.Second, MissedReports: 3, ShutdownGrace: 5 * time.Second,
			RegistrationTimeout: time.Minute, DeletedRetention: time.Minute,
		},
	}
	w.group = fleet.Group{Key: fleet.GroupKey{Tenant: "default", Name: "web"}, Size: w.rng.IntN(6), Hashes: fleet.Hashes{Infra: "h0"}}
	if w.chance(0.5) {
		w.group.Files = map[string]fleet.File{"app.conf": {Kind: "string"}}
	}
	w.group.MaxSurge = []fleet.Surge{{}, {}, {Count: 2}, {Percent: 50}}[w.rng.IntN(4)]
	if w.chance(0.5) {
		w.settings.Settle = 15 * time.Second
	}
	if w.chance(0.8) {
		w.group.DrainTimeout = 20 * time.Second
	}
	if trace {
		w.timeline = &strings.Builder{}
	}
	w.lead()
	return w
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// upTo draws a duration of at most d, in milliseconds.
func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(d/time.Millisecond)+1)) * time.Millisecond
}

// after schedules do; a decision follows when it has run.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{at: w.now.Add(d), seq: w.seq, do: do})
}

// run advances the time to the given time, or until an invariant is violated.
func (w *world) run(until time.Time) {
	for w.problem == "" {
		next := until
		if len(w.events) > 0 && w.events[0].at.Before(next) {
			next = w.events[0].at
		}
		if !w.wakeAt.IsZero() && w.wakeAt.Before(next) {
			w.now, w.wakeAt = w.wakeAt, time.Time{}
			w.decide()
			continue
		}
		w.now = next
		if !next.Before(until) {
			return
		}
		heap.Pop(&w.events).(event).do()
		w.decide()
	}
}

// say adds a line to the timeline, if there is one.
func (w *world) say(format string, args ...any) {
	if w.timeline != nil {
		fmt.Fprintf(w.timeline, "%9.3fs  %s\n", w.now.Sub(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)).Seconds(), fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.problem == "" {
		w.problem = fmt.Sprintf(format, args...)
		w.say("BROKEN: %s", w.problem)
	}
}

// name returns a short name for the timeline.
func name(id fleet.InstanceID) string {
	if id == "" {
		return "-"
	}
	return strings.TrimLeft(string(id[len(id)-8:]), "0")
}

func (w *world) find(id fleet.InstanceID) *machine {
	for _, m := range w.machines {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// view returns the leader's view.
func (w *world) view() plan.View {
	v := plan.View{
		Now: w.now, Group: w.group, Settings: w.settings, Takeover: w.takeover, Pace: w.pace,
		Surge:     w.grant,
		Instances: w.seen[:0],
	}
	for _, m := range w.machines {
		if !m.recorded && !m.busy {
			continue // a VM, or a record being written, that this leader does not know
		}
		v.Instances = append(v.Instances, plan.Instance{
			Instance: new(m.Instance), VM: m.known, Busy: m.busy, RetryAt: m.retryAt, Stray: m.stray,
			Immediate: m.immediate,
			Health: plan.Health{
				Connected: m.up && !m.away, LastReportAt: w.lastReport(m), ShuttingDownAt: m.leaving, Notice: m.notice,
				WithoutFiles: m.bare && !w.lastReport(m).IsZero(),
			},
		})
	}
	w.seen = v.Instances
	return v
}

// lastReport computes the time of the last of an agent's periodic reports.
func (w *world) lastReport(m *machine) time.Time {
	if !m.up || m.away {
		return m.heard
	}
	every := w.settings.ReportInterval
	return m.upAt.Add(w.now.Sub(m.upAt) / every * every)
}

func (w *world) decide() {
	if !w.leading || w.problem != "" {
		return
	}
	w.judge()
	v := w.view()
	d := plan.Next(v)
	w.check(v, d)
	w.wakeAt = time.Time{}
	for _, a := range d.Actions {
		if a.Kind == plan.Wake {
			w.wakeAt = a.At
			continue
		}
		w.acts++
		w.say("  %s %s %s", a.Kind, name(a.ID), a.Reason)
		w.apply(a)
	}
}
