package operators

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/broadcast"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
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
	Now  func() time.Time
}

// Watches are what the watch streams of one term follow. Safe for concurrent
// use.
type Watches struct {
	cfg       WatchesConfig
	groups    *broadcast.Hub[fleet.GroupKey, *nstancev1.GroupStatus]
	instances *broadcast.Hub[fleet.InstanceID, *nstancev1.InstanceStatus]
}

// NewWatches returns the watches of a term, which work once Run runs.
func NewWatches(cfg WatchesConfig) *Watches {
	w := &Watches{cfg: cfg}
	w.groups = broadcast.NewHub(broadcast.Config[fleet.GroupKey, *nstancev1.GroupStatus]{
		Keys: cfg.Shard.Groups.All, Look: w.lookGroup, Digest: func(g *nstancev1.GroupStatus) broadcast.Digest { return digest(g) },
		Compare: fleet.GroupKey.Compare, Initial: func(*nstancev1.GroupStatus) bool { return true },
		TellGone: true, MaxPending: maxPendingKeys,
	})
	w.instances = broadcast.NewHub(broadcast.Config[fleet.InstanceID, *nstancev1.InstanceStatus]{
		Keys: w.leaving, Look: w.lookInstance, Digest: digestInstance,
		Compare: func(a, b fleet.InstanceID) int { return strings.Compare(string(a), string(b)) },
		Initial: func(i *nstancev1.InstanceStatus) bool { return !isDeleted(i) }, MaxPending: maxPendingKeys,
	})
	return w
}

// Run follows changes until ctx ends.
func (w *Watches) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { w.groups.Run(ctx) })
	both.Go(func() { w.instances.Run(ctx) })
	both.Wait()
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
		w.instances.Mark(id)
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

// lookInstance is what a draining, deleting or deleted instance is like now. One
// whose record is gone is deleted, if its end was not seen before.
func (w *Watches) lookInstance(id fleet.InstanceID, last *nstancev1.InstanceStatus, known bool) (*nstancev1.InstanceStatus, bool) {
	i, ok := w.cfg.Shard.Instances.Get(id)
	switch {
	case ok && leaves(i):
		return instanceStatus(i, w.cfg.Shard.Health(id)), true
	case ok || !known || isDeleted(last):
		return nil, false
	}
	end := proto.CloneOf(last)
	end.Phase, end.DeletedAt, end.Connected = nstancev1.InstancePhase_INSTANCE_PHASE_DELETED, timestamppb.New(w.cfg.Now()), false
	return end, true
}

// leaving lists the instances that a snapshot shows.
func (w *Watches) leaving() (ids []fleet.InstanceID) {
	for _, i := range w.cfg.Shard.Instances.Instances() {
		if leaves(i) && i.Phase != fleet.Deleted {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

func leaves(i fleet.Instance) bool {
	return i.Phase == fleet.Draining || i.Phase == fleet.Deleting || i.Phase == fleet.Deleted
}

func isDeleted(i *nstancev1.InstanceStatus) bool {
	return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
}

// digestInstance leaves out when the agent reported last: that it goes on doing
// so is no news.
func digestInstance(i *nstancev1.InstanceStatus) broadcast.Digest {
	if i.GetLastReportAt() != nil {
		i = proto.CloneOf(i)
		i.LastReportAt = nil
	}
	return digest(i)
}

func digest(m proto.Message) broadcast.Digest {
	// What was made here has no required fields and no text that is not UTF-8, so
	// it always encodes.
	body, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return sha256.Sum256(body)
}
