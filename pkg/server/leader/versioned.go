package leader

import (
	"fmt"
	"log/slog"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/server/election"
)

// versioned tracks the newest version of an object that successive leaders write: a record in
// groups/, or applied/.
//
// A write whose outcome is unknown may land at any later time, as long as the version that it
// replaces is still the newest. That applies to writes of this term and to unknown writes of
// earlier leaders. So a version that was only read may still be replaced by something older
// than what callers were told in the meantime; but a version that this term has written can't
// be, except by a later write of this term. Hence proven: no caller is told what a version
// says, or lacks, on the strength of a read.
//
// Not safe for concurrent use.
type versioned struct {
	key    string
	epoch  uint64 // of the term
	writer string // this process
	// rise is called with an epoch later than the term's.
	rise func(epoch uint64)

	etag object.ETag // of the newest version seen; empty: there is none
	rev  uint64      // the highest seen or tried
	// proven: the newest version is a write of this term that is known to have landed, with no
	// later write in doubt.
	proven bool
}

// newVersioned returns a tracker for an object.
func newVersioned(cfg Config, key string) versioned {
	rise := func(later uint64) {
		cfg.Logger.Warn("object was written in a later epoch", slog.String("key", key), slog.Uint64("later", later))
		cfg.Fence.RiseAbove(later)
	}
	return versioned{key: key, epoch: cfg.Fence.Epoch(), writer: cfg.Writer, rise: rise}
}

// readable returns an error for a header whose epoch exceeds this server's last term and the
// maximum, or whose rev can only be damage.
func readable(key string, h config.Header, term uint64) error {
	if h.Epoch > max(term, election.MaxEpoch) {
		return fmt.Errorf("%s: epoch: %d, want at most %d", key, h.Epoch, max(term, election.MaxEpoch))
	}
	if err := record.CheckNumber("rev", h.Rev); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// saw records a version that was read; one without a header has the zero header. A later epoch
// ends the term: the error is election.ErrNotLeader then. Only the election record decides who
// leads, so it is read next (election.Term.RiseAbove).
func (v *versioned) saw(h config.Header, etag object.ETag) error {
	if h.Epoch > v.epoch {
		v.rise(h.Epoch)
		return fmt.Errorf("%s was written in epoch %d, this is %d: %w", v.key, h.Epoch, v.epoch, election.ErrNotLeader)
	}
	v.proven = v.proven && etag == v.etag
	v.etag, v.rev = etag, max(v.rev, h.Rev)
	return nil
}

// next starts a write, which is in doubt until landed is called. Its header differs from that of
// every earlier write.
func (v *versioned) next() config.Header {
	v.proven = false
	v.rev++
	return config.Header{Epoch: v.epoch, Rev: v.rev, Writer: v.writer}
}

// over returns the precondition of a write: the last version seen, or absence.
func (v *versioned) over() object.Precondition {
	if v.etag == "" {
		return object.IfAbsent()
	}
	return object.IfMatch(v.etag)
}

// landed marks the last write as landed. All earlier ones were conditional on an older
// version, and can't land any more.
func (v *versioned) landed(etag object.ETag) { v.etag, v.proven = etag, true }
