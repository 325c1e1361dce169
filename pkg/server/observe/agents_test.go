package observe_test

import (
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/plan"
)

// TestNewsOfAgents: what each word of an agent calls for, one after the other.
func TestNewsOfAgents(t *testing.T) {
	type heard = func(*observe.State) observe.News
	report := func(r fleet.Report) heard {
		return func(s *observe.State) observe.News { r.At = at(5); return s.Reported("i", r) }
	}
	connect := func(s *observe.State) observe.News { return s.Connected("i") }
	disconnect := func(s *observe.State) observe.News { return s.Disconnected("i", at(5)) }
	shut, well := report(fleet.Report{ShuttingDown: true}), report(fleet.Report{})
	bare := report(fleet.Report{WithoutFiles: true})
	notice := func(after time.Duration) heard {
		n := &fleet.Notice{}
		if after > 0 {
			n.At = at(5).Add(after)
		}
		return report(fleet.Report{Notice: n})
	}
	for name, c := range map[string]struct {
		before []heard
		then   heard
		pass   observe.Urgency
		poll   bool
	}{
		"connects":                          {nil, connect, observe.Urgent, false},
		"connects again":                    {[]heard{connect}, connect, observe.Nothing, false},
		"disconnects":                       {[]heard{connect}, disconnect, observe.Urgent, true},
		"reports":                           {[]heard{connect}, well, observe.Unhurried, false},
		"reports again":                     {[]heard{connect, well}, well, observe.Nothing, false},
		"still lacks its files":             {[]heard{connect, bare}, bare, observe.Nothing, false},
		"gets its files":                    {[]heard{connect, bare}, well, observe.Unhurried, false},
		"loses its files":                   {[]heard{connect, well}, bare, observe.Unhurried, false},
		"shuts down":                        {[]heard{connect, well}, shut, observe.Urgent, true},
		"still shuts down":                  {[]heard{connect, well, shut}, shut, observe.Nothing, false},
		"changed its mind":                  {[]heard{connect, well, shut}, well, observe.Urgent, false},
		"announces its end":                 {[]heard{connect, well}, notice(0), observe.Urgent, false},
		"announces it again":                {[]heard{connect, well, notice(0)}, notice(0), observe.Nothing, false},
		"announces when":                    {[]heard{connect, well, notice(0)}, notice(time.Minute), observe.Urgent, false},
		"announces another time":            {[]heard{connect, well, notice(time.Minute)}, notice(time.Hour), observe.Nothing, false},
		"withdraws what can't be withdrawn": {[]heard{connect, well, notice(time.Minute)}, well, observe.Nothing, false},
	} {
		known := records{}
		r := known.running("i", 0)
		s := observe.New(known, true, began)
		s.See(at(1), shows(r, provider.StateRunning, 1))
		for _, word := range c.before {
			word(s)
		}
		n := c.then(s)
		if n.Record.ID != r.ID || n.Pass != c.pass || n.Poll != c.poll || n.Changed != (c.pass != observe.Nothing) {
			t.Errorf("%s: %+v", name, n)
		}
		delete(known, "i")
		if n := c.then(s); n.Record.ID != "" || n.Poll || n.Changed || n.Pass != observe.Nothing {
			t.Errorf("%s: news without a record: %+v", name, n)
		}
	}
}

// TestConnectionFromADeadMachine contradicts the provider: the VM is polled.
func TestConnectionFromADeadMachine(t *testing.T) {
	known := records{}
	r := known.running("i", 0)
	s := observe.New(known, true, began)
	s.See(at(1), shows(r, provider.StateStopped, 1))
	if n := s.Connected("i"); !n.Poll {
		t.Errorf("news: %+v", n)
	}
	if n := s.Disconnected("i", at(2)); n.Poll {
		t.Errorf("the end of a dead machine's stream is no news of it: %+v", n)
	}
}

// TestHealth: the condition is that of a decision, and the error that of the last step, or of
// the record.
func TestHealth(t *testing.T) {
	known := records{}
	r := known.running("i", 0)
	s := observe.New(known, true, began)
	strict := plan.Settings{ReportInterval: time.Second, MissedReports: 3}
	s.See(at(1), shows(r, provider.StateRunning, 1))
	s.Connected("i")
	s.Reported("i", fleet.Report{At: at(1), WithoutFiles: true})
	h := s.Health("i", strict, began, at(2))
	if h != (observe.Health{Connected: true, LastReportAt: at(1), WithoutFiles: true, VM: provider.StateRunning}) {
		t.Errorf("well: %+v", h)
	}
	if h := s.Health("i", strict, began, at(60)); h.Unhealthy != plan.ReasonUnhealthy {
		t.Errorf("silent for a minute: %+v", h)
	}
	s.StartStep(web, "i", at(3))
	s.EndStep(web, "i", errStore, twice, at(4))
	if h := s.Health("i", strict, began, at(4)); h.LastError != errStore.Error() || !h.LastErrorAt.Equal(at(4)) {
		t.Errorf("after a failed step: %+v", h)
	}
	known.add(fleet.Instance{ID: "old", Phase: fleet.Deleted, Failure: "no room", DeletedAt: new(at(-9))})
	if h := s.Health("old", strict, began, at(4)); h.LastError != "no room" || !h.LastErrorAt.Equal(at(-9)) {
		t.Errorf("of an earlier term: %+v", h)
	}
	if h := s.Health("unknown", strict, began, at(4)); h != (observe.Health{}) {
		t.Errorf("of no instance: %+v", h)
	}
}
