package shardgroup

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// Pauses between failing calls of a group.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = time.Minute
)

// callResult is the result of a call.
type callResult struct {
	of         types.UID // the object's
	generation int64     // the object's
	was        string    // the group's etag on which it was based
	etag       string    // the group's new etag, if accepted
	vars       string    // digest of the vars set; empty if none
	unsurged   bool      // it withdrew the surge
	closed     bool      // it withdrew the on_demand
	deletes    bool      // it deleted the group
	err        error
}

// took returns the digest of the vars that the shard accepted; empty if none.
func (o callResult) took() string {
	if o.err != nil {
		return ""
	}
	return o.vars
}

// tookSurge reports whether the shard accepted the surge's withdrawal.
func (o callResult) tookSurge() bool { return o.unsurged && o.err == nil }

// tookOnDemand reports whether the shard accepted the on_demand's withdrawal.
func (o callResult) tookOnDemand() bool { return o.closed && o.err == nil }

// memory remembers each group's last call, so that the same call is not repeated, and the last
// write of its object. It may be lost: that costs a call. Safe for concurrent use.
type memory struct {
	pauses workqueue.TypedRateLimiter[reconcile.Request]

	mu      sync.Mutex
	last    map[reconcile.Request]last
	written map[reconcile.Request]write
}

// last is a result, and when the call may be repeated.
type last struct {
	callResult
	until time.Time
}

// write is the resource version of an object after a write, and when that was.
type write struct {
	version string
	at      time.Time
}

func newMemory() *memory {
	return &memory{
		pauses:  workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstPause, lastPause),
		last:    map[reconcile.Request]last{},
		written: map[reconcile.Request]write{},
	}
}

// remember stores a result.
func (m *memory) remember(req reconcile.Request, o callResult, now time.Time) {
	until := now.Add(lastPause) // accepted: normally the change is visible at once
	if o.err != nil {
		until = now.Add(m.pauses.When(req))
	} else {
		m.pauses.Forget(req)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[req] = last{o, until}
}

func (m *memory) of(req reconcile.Request) last {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last[req]
}

func (m *memory) forget(req reconcile.Request) {
	m.pauses.Forget(req)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, req)
	delete(m.written, req)
}

// wrote remembers that an object was just written.
func (m *memory) wrote(req reconcile.Request, o *v1beta1.NstanceShardGroup, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written[req] = write{o.ResourceVersion, now}
}

// unseen reports whether an object from the cache is older than its last write. An event
// announces that, but the shard's answer to a change is an event too, and mostly comes first:
// what is decided on the old object could not be written. After a while the versions no longer
// count: they go back when the cluster is restored from a copy.
func (m *memory) unseen(req reconcile.Request, o *v1beta1.NstanceShardGroup, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.written[req]
	order, err := resourceversion.CompareResourceVersion(o.ResourceVersion, last.version)
	return err == nil && order < 0 && now.Sub(last.at) < grace
}

// holds reports whether the result is for the same generation and etag, so that the same call
// would have the same result, or for a change that is not visible yet.
func (l last) holds(generation int64, etag string) bool {
	if l.generation != generation {
		return false
	}
	return l.was == etag || l.err == nil && l.etag == etag
}

// deleted reports whether the shard has accepted the deletion of the object's group, and no
// other call followed.
func (l last) deleted(of types.UID) bool { return l.deletes && l.err == nil && l.of == of }

// accepted reports whether the shard accepted a generation.
func (l last) accepted(generation int64) bool {
	return l.generation == generation && l.err == nil && !l.deletes
}

// refusal returns the shard's error text; empty if it accepted the call or did not process it.
func (l last) refusal() string {
	if l.err == nil || passing(l.err) {
		return ""
	}
	return words(l.err)
}

// passing reports whether an error is unrelated to the request's content. Unknown is used for
// errors that did not come from a shard, such as a context's end.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unknown, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Unauthenticated:
		return true
	default:
		return false
	}
}

// words returns a shard's error text without the prefix of gRPC.
func words(err error) string {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Message()
	}
	return err.Error()
}
