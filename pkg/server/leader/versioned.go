package leader

import (
	"fmt"
	"log/slog"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/server/election"
)

// versioned is what a term knows of the newest version of an object that leaders
// write, one after another: groups/ and applied/.
//
// A write whose outcome is unknown may land at any later time, as long as the
// version that it replaces is still the newest. That goes for a write of this term
// and for one of a leader before, of which this one knows nothing. So a version
// that was only read may be replaced by something older than what callers were
// told in the meantime; but one that this term has written can't be, unless by a
// write of this term that came after it. Hence the rule that proven stands for: no
// caller is told what a version says, or lacks, on the strength of a read.
//
// It belongs to one writer at a time.
type versioned struct {
	key    string
	epoch  uint64 // of the term
	writer string // this process
	// rise is told of a later epoch than the term's.
	rise func(epoch uint64)

	etag object.ETag // of the newest version seen; empty: there is none
	rev  uint64      // the highest seen or tried
	// proven: the newest version is a write of this term that is known to have
	// landed, with none in doubt since.
	proven bool
}

// newVersioned begins to keep count of an object's versions.
func newVersioned(cfg Config, key string) versioned {
	rise := func(later uint64) {
		cfg.Logger.Warn("an object is of a later epoch", slog.String("key", key), slog.Uint64("later", later))
		cfg.Fence.RiseAbove(later)
	}
	return versioned{key: key, epoch: cfg.Fence.Epoch(), writer: cfg.Writer, rise: rise}
}

// readable refuses a header with an epoch that is later than this server's last term
// and that none can rise above, or with a rev that can only be damage.
func readable(key string, h config.Header, term uint64) error {
	if h.Epoch > max(term, election.MaxEpoch) {
		return fmt.Errorf("%s: epoch: %d, want at most %d", key, h.Epoch, max(term, election.MaxEpoch))
	}
	if err := record.CheckNumber("rev", h.Rev); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// saw takes note of a version that was read; one without a header has the zero
// one. A later epoch than the term's is the end of the term: the error is
// election.ErrNotLeader then. Only the election record says who leads, so that is
// read next (election.Term.RiseAbove).
func (v *versioned) saw(h config.Header, etag object.ETag) error {
	if h.Epoch > v.epoch {
		v.rise(h.Epoch)
		return fmt.Errorf("%s was written in epoch %d, this is %d: %w", v.key, h.Epoch, v.epoch, election.ErrNotLeader)
	}
	v.proven = v.proven && etag == v.etag
	v.etag, v.rev = etag, max(v.rev, h.Rev)
	return nil
}

// next begins a write: it is in doubt until it is known to have landed. Its
// header is unlike that of any write before.
func (v *versioned) next() config.Header {
	v.proven = false
	v.rev++
	return config.Header{Epoch: v.epoch, Rev: v.rev, Writer: v.writer}
}

// over is what a write replaces: the version seen last, or none.
func (v *versioned) over() object.Precondition {
	if v.etag == "" {
		return object.IfAbsent()
	}
	return object.IfMatch(v.etag)
}

// landed ends the doubt of the write that was begun last. All others were
// conditional on an older version, and can't land any more.
func (v *versioned) landed(etag object.ETag) { v.etag, v.proven = etag, true }
