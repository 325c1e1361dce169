package operators

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/broadcast"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
)

// MaxPendingProblems is how many problems may wait for one reader.
const MaxPendingProblems = 1000

// maxPendingKeys is how many changed groups or instances may wait for one
// reader.
const maxPendingKeys = 10_000

// WatchesConfig is what Watches need.
type WatchesConfig struct {
	Shard Shard // Watches aside
	// Join counts an operator as one that has a stream open, until leave is called.
	// cut is closed when it is not let in any more; then it is refused, with an
	// error of kind CertificateRevoked, also here.
	Join func(ctx context.Context, caller pki.Caller) (cut <-chan struct{}, leave func(), err error)
	// Done is closed when the term ends.
	Done <-chan struct{}
	// Epoch and Writer are the term's; resume tokens of another are good for nothing.
	// Writer is unique per process start.
	Epoch  uint64
	Writer string
	Now    func() time.Time
}

// Watches are what the watch streams of one term follow. Safe for concurrent
// use.
type Watches struct {
	cfg    WatchesConfig
	groups *broadcast.Hub[fleet.GroupKey, *nstancev1.GroupStatus]
	// Those who wait for what leaves cost nothing for what does not.
	leaving, every *instanceHub
}

// NewWatches returns the watches of a term, which work once Run runs.
func NewWatches(cfg WatchesConfig) *Watches {
	w := &Watches{cfg: cfg}
	w.groups = broadcast.NewHub(broadcast.Config[fleet.GroupKey, *nstancev1.GroupStatus]{
		Keys: cfg.Shard.Groups.All, Look: w.lookGroup, Digest: groupDigest,
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

// Changed tells that something of an instance may have changed; of the whole
// group when id is empty, of any group when the key is zero too. It returns at
// once, and is called when the change can be seen.
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

// lookGroup is what a group is like now. One that is neither desired nor has
// instances is gone. One whose status can't be told stays as it was.
func (w *Watches) lookGroup(key fleet.GroupKey, last *nstancev1.GroupStatus, known bool) (*nstancev1.GroupStatus, bool) {
	lives := func(i fleet.Instance) bool { return i.Phase != fleet.Deleted }
	if _, desired := w.cfg.Shard.Groups.Group(key); !desired && !slices.ContainsFunc(w.cfg.Shard.Instances.Group(key), lives) {
		return nil, false
	}
	status, err := groupStatus(w.cfg.Shard, key)
	if err != nil {
		return last, known
	}
	return status, true
}

func digest(m proto.Message) broadcast.Digest {
	// What was made here has no required fields and no text that is not UTF-8, so
	// it always encodes.
	body, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return sha256.Sum256(body)
}
