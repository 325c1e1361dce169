package rpc

import (
	"log/slog"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
)

// How often refused calls are logged, of one source and of all together.
func refusalRate() Rate    { return Rate{PerSecond: 0.2, Burst: 20} }
func allRefusalRate() Rate { return Rate{PerSecond: 10, Burst: 200} }

// maxReason bounds what a line quotes of a caller, in bytes.
const maxReason = 512

// refusals say what to log of the calls that were refused, and of those that failed.
// A flood of them must not fill the log, so lines are bounded per source, and the
// next line says how many were left out. It is safe for concurrent use.
type refusals struct {
	sources *buckets[netip.Prefix]
	all     *buckets[struct{}]
}

func newRefusals(now func() time.Time) *refusals {
	return &refusals{
		sources: newBuckets[netip.Prefix](refusalRate(), now),
		all:     newBuckets[struct{}](allRefusalRate(), now),
	}
}

// refused reports whether an answer turns its caller away: for who it is, for
// what it takes, or, when it has no certificate, for what it says of itself.
// NOT_LEADER and other troubles of the server's are no refusals.
func (c *call) refused(code codes.Code) bool {
	switch code {
	case codes.PermissionDenied, codes.ResourceExhausted:
		return true
	case codes.Unauthenticated:
		// An open stream that ends so is of an instance that has just been removed.
		return !c.admitted || c.unary
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition:
		return c.caller == nil
	default:
		return false
	}
}

// line is what to log of a call that came to nothing, and why it did. Not ok: no
// more lines are to be written for now.
func (r *refusals) line(c *call, reason error) (attrs []slog.Attr, ok bool) {
	leftOut, ok := r.count(c.from)
	if !ok {
		return nil, false
	}
	caller, from := "none", "unknown"
	if c.conn != nil && c.conn.spiffe != "" {
		caller = c.conn.spiffe
	}
	if c.from != nil {
		from = c.from.String()
	}
	attrs = []slog.Attr{
		slog.String("caller", brief(caller)), slog.String("method", brief(c.method)),
		slog.String("from", from), slog.String("reason", brief(reason.Error())),
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int("left_out", leftOut))
	}
	return attrs, true
}

// count reports whether one more line may be written, and how many lines of that
// source, or for want of room in the log of any, were left out before it.
func (r *refusals) count(from net.Addr) (leftOut int, ok bool) {
	source, _ := sourceOfAddr(from)
	leftOut, ok = r.sources.take(source)
	if !ok {
		return 0, false
	}
	more, ok := r.all.take(struct{}{})
	if !ok {
		r.all.miss(struct{}{}, leftOut)
		return 0, false
	}
	return leftOut + more, true
}

func brief(text string) string { return text[:min(len(text), maxReason)] }
