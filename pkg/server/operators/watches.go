package operators

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/broadcast"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
)

// MaxPendingProblems is how many problems may be queued for one reader.
const MaxPendingProblems = 1000

// maxPendingKeys is how many changed groups or instances may be queued for one reader.
const maxPendingKeys = 10_000

// WatchesConfig is what Watches need.
type WatchesConfig struct {
	Shard Shard // without Watches
	// Join counts an open stream of an operator until leave is called. cut is closed when the
	// operator is refused, with an error of kind CertificateRevoked, which Join returns if it
	// is refused already.
	Join func(ctx context.Context, caller pki.Caller) (cut <-chan struct{}, leave func(), err error)
	// Done is closed when the term ends.
	Done <-chan struct{}
	// Epoch and Writer identify the term; resume tokens of another term are invalid. Writer is
	// unique per process start.
	Epoch  uint64
	Writer string
	Now    func() time.Time
}

// Watches are the sources of one term's watch streams. Safe for concurrent use.
type Watches struct {
	cfg    WatchesConfig
	groups *broadcast.Hub[fleet.GroupKey, *nstancev1.GroupStatus]
	// Separate hubs, so that readers of leaving instances cost nothing for changes of the
	// others.
	leaving, every *instanceHub
}

// NewWatches returns the watches of a term, which work while Run runs.
func NewWatches(cfg WatchesConfig) *Watches {
	w := &Watches{cfg: cfg}
	w.groups = broadcast.NewHub(broadcast.Config[fleet.GroupKey, *nstancev1.GroupStatus]{
		Keys: cfg.Shard.Groups.All, Look: w.currentGroup, Digest: groupDigest,
		Compare: fleet.GroupKey.Compare, Initial: func(*nstancev1.GroupStatus) bool { return true },
		TellGone: true, MaxPending: maxPendingKeys,
	})
	w.leaving, w.every = w.follow(false), w.follow(true)
	return w
}

// Run follows changes until ctx ends.
func (w *Watches) Run(ctx context.Context) {
	var hubs sync.WaitGroup
	hubs.Go(func() { w.groups.Run(ctx) })
	hubs.Go(func() { w.leaving.Run(ctx) })
	hubs.Go(func() { w.every.Run(ctx) })
	hubs.Wait()
}

// Changed records that an instance may have changed; the whole group if id is empty, any group
// if key is zero too. It returns at once, and must be called after the change is visible.
func (w *Watches) Changed(key fleet.GroupKey, id fleet.InstanceID) {
	if key == (fleet.GroupKey{}) {
		w.groups.Resync()
	} else {
		w.groups.Mark(key)
	}
	if id != "" {
		w.leaving.Mark(id)
		w.every.Mark(id)
	}
}

// currentGroup returns the current status of a group. A group without definition and instances
// is gone. If the status can't be determined, the last one is kept.
func (w *Watches) currentGroup(key fleet.GroupKey, last *nstancev1.GroupStatus, known bool) (*nstancev1.GroupStatus, bool) {
	if !exists(w.cfg.Shard, key) {
		w.cfg.Shard.Transitions.forget(key)
		return nil, false
	}
	status, err := groupStatus(w.cfg.Shard, key)
	if err != nil {
		return last, known
	}
	return status, true
}

func digest(m proto.Message) broadcast.Digest {
	// These messages have no required fields and only valid UTF-8, so encoding never fails.
	body, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return sha256.Sum256(body)
}
