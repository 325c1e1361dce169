package leader

import (
	"context"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/history"
)

func eventsKey(shard string) string { return "events/" + shard + ".json" }

// newHistory returns the history of the term. It uses the store whose requests do not count as
// progress of the shard's work, or as a lack of it: nothing depends on the history.
func (t *Term) newHistory() (*history.History, error) {
	key := eventsKey(t.cfg.Static.Shard)
	return history.New(history.Config{
		Store: t.cfg.Operators, Key: key, Epoch: t.cfg.Fence.Epoch(), Writer: t.cfg.Writer,
		Readable: func(epoch uint64) error { return readable(key, config.Header{Epoch: epoch}, t.cfg.Fence.Epoch()) },
		Permit:   t.cfg.Fence.Check,
		Timeout:  t.config.requestTimeout, Now: t.cfg.Now, Logger: t.cfg.Logger,
	})
}

// StoreEvents stores the last events of a term that gave up the lead, for a short time. A term that
// lost it writes nothing any more. It is called after Run.
func (t *Term) StoreEvents(ctx context.Context) {
	if !t.cfg.Fence.Lost() {
		t.history.Flush(ctx)
	}
}

// Audited records an audited call as an event if it is an accepted change of an operator.
func (t *Term) Audited(a audit.Event) {
	e, ok := history.Changed(a)
	if !ok {
		return
	}
	if i, known := t.records.Get(e.Instance); known && e.Instance != "" && i.Tenant == e.Tenant {
		e.Group = i.Group
	}
	if len(e.Changes) > 0 && e.Group == "" && e.Instance != "" {
		e.Group = groupIn(e.Changes)
	}
	t.history.Record(e)
}

// groupIn returns the group that a change names; empty if it names none.
func groupIn(changes []fleet.Change) string {
	for _, c := range changes {
		if c.Name == "group" {
			return c.To
		}
	}
	return ""
}
