package election

import (
	"errors"
	"log/slog"
)

// MaxEpoch is the highest epoch that a term rises above. A higher number that no term has had is
// damage: JSON readers that use floating-point numbers can't distinguish it from the next.
const MaxEpoch = 1 << 53

// lastEpoch is the highest valid epoch of an election record. It leaves ample room above
// MaxEpoch.
const lastEpoch = MaxEpoch + 1<<32

var errOutranked = errors.New("an object of a later epoch was found")

// RiseAbove ends the term because an object of the shard has a later epoch than the term, so
// that nothing written in the term would count as newer. The cause may be another leader, or
// damage; only the election record tells which: this server reads it again, and if it still
// holds it, takes it again, with an epoch above the given one. It is a no-op after the term,
// and for an epoch that is not later or exceeds MaxEpoch.
func (t *Term) RiseAbove(epoch uint64) {
	if epoch <= t.epoch || epoch > MaxEpoch {
		return
	}
	t.elector.log.Warn("object of a later epoch found, term ends", slog.Uint64("epoch", t.epoch), slog.Uint64("later", epoch))
	t.elector.step(func(m *machine, now instant) { m.riseAbove(now, t.epoch, epoch) })
}

func (m *machine) riseAbove(now instant, term, met uint64) {
	if m.inTerm(term) {
		m.floor = max(m.floor, met)
		m.endTerm(errOutranked)
	}
	m.decide(now)
}

// exhausted reports whether no epoch is left after the last record seen.
func (m *machine) exhausted() bool { return m.view.present && m.view.record.Epoch >= lastEpoch }
