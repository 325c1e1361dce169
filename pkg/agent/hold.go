package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	// revokedWait is the pause of an agent that is not welcome any more: its
	// instance is about to go, or another machine has its identity and keeps it.
	// Asking more often changes nothing.
	revokedWait = time.Minute
	// lastReportWait bounds how long a stopping agent waits for the server to take
	// its last report.
	lastReportWait = 2 * time.Second
)

// HoldConfig is what Hold needs. It is all that distinguishes one agent from
// another once it is registered, so that thousands fit into one process.
type HoldConfig struct {
	Client         *rpc.Client // of the agent service; Hold leaves it open
	ReportInterval time.Duration
	// Run tells this agent from another one with the same identity (rpc.WithRun); empty: the
	// server goes by addresses alone.
	Run string
	// Fill completes a report: version, resources and the like. Sequence, uptime,
	// sent_at, shutting_down and report_interval are set already.
	Fill      func(context.Context, *nstancev1.ReportHealthRequest)
	Files     Files           // nil: files that are sent are ignored, and none reported
	Keys      Keys            // nil: requests for keys are ignored
	Expired   func() bool     // reports whether the certificate is no good any more; nil: it is good
	ReportNow <-chan struct{} // asks for a report at once; nil: never
	Random    func() float64  // yields numbers from [0, 1)
	Now       func() time.Time
	Logger    *slog.Logger
	Observe   func(Event) // is called from several goroutines, and must not block; optional
}

// Event is one change that Hold tells its observer.
type Event struct {
	Kind     EventKind
	Stream   string // of StreamOpened, StreamClosed and StreamUnserved
	Server   string // the address
	Sequence uint64 // of Reported
	// Report is what was reported, of Reported. It must not be changed.
	Report *nstancev1.ReportHealthRequest
	Err    error // of StreamClosed and Disconnected
}

// EventKind says what happened.
type EventKind int

// The kinds of events.
const (
	StreamOpened EventKind = iota
	StreamClosed
	StreamUnserved // the server does not offer this stream; it is not asked again on this connection
	Reported
	Disconnected
)

// The names of the streams in events.
const (
	StreamHealth = "ReportHealth"
	StreamKeys   = "KeyGenRequests"
	StreamFiles  = "ReceiveFiles"
)

// Hold keeps an agent's three streams open until ctx ends, reconnecting with
// jitter wherever the leader is. The report stream is the heartbeat: when it
// breaks the others go with it and all are opened anew. When ctx ends a last
// report says that the agent is shutting down, and Hold returns once the server
// has taken it, or after two seconds.
func Hold(ctx context.Context, c HoldConfig) {
	h := &holder{HoldConfig: c, started: c.Now(), filesChanged: newTrigger()}
	for failures, hops := 0, 0; ctx.Err() == nil; {
		began := c.Now()
		followed, err := h.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		h.observe(Event{Kind: Disconnected, Err: err})
		if followed && hops < rpc.MaxHops {
			hops++
			continue
		}
		hops = 0
		if c.Now().Sub(began) >= rpc.SteadyAfter {
			failures = 0
		}
		failures++
		h.pause(ctx, failures, err)
	}
}

type holder struct {
	HoldConfig
	started      time.Time
	sequence     uint64
	filesChanged trigger                           // there is something to report of the files
	failed       atomic.Pointer[map[string]string] // what the last commit failed on, by file; nil: it did not
}

func (h *holder) observe(e Event) {
	if h.Observe != nil {
		h.Observe(e)
	}
}

// pause waits before the next connection, for no longer than between two reports:
// the server counts the reports that are missing, and a longer wait would make a
// healthy machine look dead.
func (h *holder) pause(ctx context.Context, failures int, err error) {
	backoff := rpc.Backoff()
	backoff.Limit = min(backoff.Limit, h.ReportInterval)
	wait := backoff.Draw(failures, h.Random)
	level := slog.LevelWarn
	if rpc.Revoked(err) || rpc.Shared(err) || h.Expired != nil && h.Expired() {
		wait += revokedWait
		level = slog.LevelError
	}
	h.Logger.LogAttrs(ctx, level, "lost the server", slog.Any("error", err), slog.Duration("retry_in", wait))
	// Cut short by the context's end, which the caller looks at itself.
	_ = retry.Wait(ctx, wait)
}

// connect holds the streams on the current connection until the report stream
// ends, and says whether the next attempt needs no wait.
func (h *holder) connect(ctx context.Context) (followed bool, err error) {
	target, err := h.Client.Target()
	if err != nil {
		return false, err
	}
	// After a renewal of the certificate the old connection is good for what is
	// open on it, but in time for nothing new.
	defer h.Client.Release(target)
	service := nstancev1.NewAgentServiceClient(h.Client.Latest(target))
	// The streams outlive ctx for as long as the last report takes.
	streams, cancel := context.WithCancelCause(rpc.WithRun(context.WithoutCancel(ctx), h.Run))
	defer cancel(nil)
	var beside sync.WaitGroup
	beside.Go(func() { h.side(streams, cancel, StreamKeys, target.Addr, h.readKeyRequests(service)) })
	beside.Go(func() { h.side(streams, cancel, StreamFiles, target.Addr, h.readFiles(service)) })
	err = h.report(ctx, streams, service, target.Addr)
	if cause := context.Cause(streams); cause != nil {
		err = cause
	}
	cancel(nil)
	beside.Wait()
	return h.Client.Failed(target, err), err
}

// side keeps one of the streams beside the report stream open: open it, read it
// until it ends, and after a wait again, for as long as ctx lasts. The trouble
// of one stream is no reason to cut the heartbeat, unless the leader is
// elsewhere. A server that does not serve the stream is not asked
// twice.
func (h *holder) side(
	ctx context.Context, cut context.CancelCauseFunc, name, server string, read func(ctx context.Context, opened func()) error,
) {
	for failures := 1; ; failures++ {
		began := h.Now()
		err := read(ctx, func() { h.observe(Event{Kind: StreamOpened, Stream: name, Server: server}) })
		if ctx.Err() != nil {
			return
		}
		if _, notLeader := rpc.NotLeader(err); notLeader {
			cut(err)
			return
		}
		if status.Code(err) == codes.Unimplemented {
			h.observe(Event{Kind: StreamUnserved, Stream: name, Server: server})
			return
		}
		h.observe(Event{Kind: StreamClosed, Stream: name, Server: server, Err: err})
		if h.Now().Sub(began) >= rpc.SteadyAfter {
			failures = 1
		}
		if retry.Wait(ctx, rpc.Backoff().Draw(failures, h.Random)) != nil {
			return
		}
	}
}

var errServerEnded = errors.New("the server ended the stream")
