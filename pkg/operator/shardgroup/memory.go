package shardgroup

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Pauses between calls that fail, of one group.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = time.Minute
)

// outcome is what came of a call.
type outcome struct {
	of         types.UID // the object that it was made for
	generation int64     // of that object
	was        string    // the group's etag that it was decided on
	etag       string    // the group's after it, if it was accepted
	vars       string    // digest of the vars that it set; empty: it set none
	unsurged   bool      // it took the surge back
	deletes    bool      // it asks for the group's deletion
	err        error
}

// took is the digest of the vars that the shard took; empty: it took none.
func (o outcome) took() string {
	if o.err != nil {
		return ""
	}
	return o.vars
}

// tookSurge reports whether the shard has taken the surge back.
func (o outcome) tookSurge() bool { return o.unsurged && o.err == nil }

// memory is what is remembered of the last call of each group, so that the same is not
// asked again and again. It may be lost: that costs a call. Safe for concurrent use.
type memory struct {
	pauses workqueue.TypedRateLimiter[reconcile.Request]

	mu   sync.Mutex
	last map[reconcile.Request]last
}

// last is an outcome, when it came, and when the same may be asked again.
type last struct {
	outcome
	at, until time.Time
}

func newMemory() *memory {
	return &memory{
		pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstPause, lastPause),
		last:   map[reconcile.Request]last{},
	}
}

// keep remembers an outcome.
func (m *memory) keep(req reconcile.Request, o outcome, now time.Time) {
	until := now.Add(lastPause) // the shard took it; it shows it at once, unless something is strange
	if o.err != nil {
		until = now.Add(m.pauses.When(req))
	} else {
		m.pauses.Forget(req)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[req] = last{o, now, until}
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
}

// holds reports whether the outcome is one of the same generation and the same group, so
// that the same call would have the same outcome, or is an answer that is yet to be seen.
func (l last) holds(generation int64, etag string) bool {
	if l.generation != generation {
		return false
	}
	return l.was == etag || l.err == nil && l.etag == etag
}

// deleted reports whether the shard has answered that the object's group is gone or goes,
// and was asked for nothing since.
func (l last) deleted(of types.UID) bool { return l.deletes && l.err == nil && l.of == of }

// accepted reports whether the shard took what was asked for a generation.
func (l last) accepted(generation int64) bool {
	return l.generation == generation && l.err == nil && !l.deletes
}

// refusal is why a shard did not accept what it was asked, in its own words; empty: it
// did, or it did not get that far.
func (l last) refusal() string {
	if l.err == nil || passing(l.err) {
		return ""
	}
	return words(l.err)
}

// passing reports whether an error says nothing about what was asked. Unknown is what
// never came from a shard, such as the end of a context.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.Unknown, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Unauthenticated:
		return true
	default:
		return false
	}
}

// words are what a shard said, without those of the protocol.
func words(err error) string {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Message()
	}
	return err.Error()
}
