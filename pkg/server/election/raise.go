package election

import (
	"errors"
	"log/slog"
)

// MaxEpoch is the highest epoch that a term rises above. A higher number that no
// term has had is damage: JSON readers that know floating-point numbers only can't
// tell it from the next.
const MaxEpoch = 1 << 53

// lastEpoch is the highest epoch that an election record may have. It leaves room
// above MaxEpoch for more terms than there will ever be.
const lastEpoch = MaxEpoch + 1<<32

var errOutranked = errors.New("something of a later epoch was found")

// RiseAbove ends the term because something of the shard bears an epoch that is
// later than the term's, so that nothing written in it would count as the newer.
// That may be the work of another leader, or damage, and the election record alone
// tells which: this server reads it anew, and if it is its own still it takes it
// once more, above the epoch given. It does nothing after the term, and nothing for
// an epoch that is not later or is above MaxEpoch.
func (t *Term) RiseAbove(epoch uint64) {
	if epoch <= t.epoch || epoch > MaxEpoch {
		return
	}
	t.elector.log.Warn("something of a later epoch was found, this term ends", slog.Uint64("epoch", t.epoch), slog.Uint64("later", epoch))
	t.elector.step(func(m *machine, now instant) { m.riseAbove(now, t.epoch, epoch) })
}

func (m *machine) riseAbove(now instant, term, met uint64) {
	if m.inTerm(term) {
		m.floor = max(m.floor, met)
		m.endTerm(errOutranked)
	}
	m.decide(now)
}

// exhausted reports whether no term can come after the record that was seen last.
func (m *machine) exhausted() bool { return m.view.present && m.view.record.Epoch >= lastEpoch }
