package agent

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

type healthStream = grpc.ClientStreamingClient[nstancev1.ReportHealthRequest, nstancev1.ReportHealthResponse]

// report runs the heartbeat: a report at once, one per interval, and a last one when run ends.
// It returns why the stream ended, or nil after the last report. streams is the context of the
// stream, which outlives run.
func (h *holder) report(run, streams context.Context, service nstancev1.AgentServiceClient, server string) error {
	ctx, cancel := context.WithCancel(streams)
	defer cancel()
	stopped := context.AfterFunc(run, cancel)
	stream, err := service.ReportHealth(ctx)
	if !stopped() {
		return run.Err()
	}
	if err != nil {
		return err
	}
	// A server that does not read must not delay a stopping agent.
	defer context.AfterFunc(run, func() { time.AfterFunc(lastReportWait, cancel) })()
	ended := make(chan error, 1)
	go func() { ended <- awaitEnd(stream) }()
	h.observe(Event{Kind: StreamOpened, Stream: StreamHealth, Server: server})
	err = h.beat(run, ctx, stream, ended, server)
	h.observe(Event{Kind: StreamClosed, Stream: StreamHealth, Server: server, Err: err})
	return err
}

func (h *holder) beat(run, ctx context.Context, stream healthStream, ended <-chan error, server string) error {
	ticker := time.NewTicker(h.ReportInterval)
	defer ticker.Stop()
	for {
		if run.Err() != nil {
			return h.lastReport(ctx, stream, ended, server)
		}
		h.clearTriggers()
		if err := h.send(ctx, stream, false, server); err != nil {
			return whyEnded(err, ended)
		}
		select {
		case <-ticker.C:
		case <-h.ReportNow:
			ticker.Reset(h.ReportInterval)
		case <-h.filesChanged:
			ticker.Reset(h.ReportInterval)
		case <-run.Done():
		case err := <-ended:
			return err
		}
	}
}

// trigger requests a report before the interval ends. Make it with newTrigger.
type trigger chan struct{}

func newTrigger() trigger { return make(trigger, 1) }

// now requests a report. It never blocks; requests until the next report are merged.
func (k trigger) now() {
	select {
	case k <- struct{}{}:
	default:
	}
}

// clearTriggers drops requests made before this report, which covers them.
func (h *holder) clearTriggers() {
	for _, asked := range []<-chan struct{}{h.ReportNow, h.filesChanged} {
		select {
		case <-asked:
		default:
		}
	}
}

// lastReport reports that the agent is stopping, and waits for the server's answer.
func (h *holder) lastReport(ctx context.Context, stream healthStream, ended <-chan error, server string) error {
	if err := h.send(ctx, stream, true, server); err != nil {
		return whyEnded(err, ended)
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := <-ended; !errors.Is(err, errServerEnded) {
		return err
	}
	return nil
}

func (h *holder) send(ctx context.Context, stream healthStream, last bool, server string) error {
	now := h.Now()
	h.sequence++
	r := &nstancev1.ReportHealthRequest{
		Sequence:       h.sequence,
		Uptime:         durationpb.New(now.Sub(h.started)),
		SentAt:         timestamppb.New(now),
		ShuttingDown:   last,
		ReportInterval: durationpb.New(h.ReportInterval),
	}
	h.Fill(ctx, r)
	h.reportFiles(r)
	fit(r)
	if err := stream.Send(r); err != nil {
		return err
	}
	h.observe(Event{Kind: Reported, Server: server, Sequence: r.Sequence, Report: r})
	return nil
}

// awaitEnd reads the server's last message. An answer without an error is an end too: the
// server has closed the stream.
func awaitEnd(stream healthStream) error {
	err := stream.RecvMsg(new(nstancev1.ReportHealthResponse))
	if err == nil || errors.Is(err, io.EOF) {
		return errServerEnded
	}
	return err
}

// whyEnded returns the reason of a failed send: gRPC returns io.EOF to the sender and the
// server's status to the reader.
func whyEnded(sendErr error, ended <-chan error) error {
	if errors.Is(sendErr, io.EOF) {
		return <-ended
	}
	return sendErr
}
