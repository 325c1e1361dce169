package agents

import (
	"errors"
	"io"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ReportHealth takes an agent's reports until the stream ends.
func (s *Service) ReportHealth(stream nstancev1.AgentService_ReportHealthServer) error {
	var in entered
	var me *session
	if err := rpc.Aside(func() (err error) {
		if in, err = s.enter(stream.Context()); err != nil {
			return err
		}
		if me, err = s.sessions.begin(stream.Context(), in.id, in.shard); err != nil {
			s.leave(in)
		}
		return err
	}); err != nil {
		return err
	}
	defer s.leave(in)
	defer func() { s.sessions.end(in.id, me, s.cfg.Now()) }()

	ended := make(chan error, 1)
	go func() { ended <- s.receive(stream, in.id, me) }()
	select {
	case err := <-ended:
		if err != nil {
			return err
		}
		return stream.SendAndClose(&nstancev1.ReportHealthResponse{})
	case <-in.shard.Done():
		return s.moved()
	case <-me.ended:
		return me.because
	case <-in.cut.done:
		return errRemoved()
	}
}

// receive passes reports on until the agent closes the stream (nil) or it breaks.
func (s *Service) receive(stream nstancev1.AgentService_ReportHealthServer, id fleet.InstanceID, me *session) error {
	var told limiter
	files := newFilesLimiter(s.cfg.Now())
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := rpc.Aside(func() error { s.hear(id, me, m, &told, files); return nil }); err != nil {
			return err
		}
	}
}

// hear passes one report on.
func (s *Service) hear(id fleet.InstanceID, me *session, m *nstancev1.ReportHealthRequest, told *limiter, files *filesLimiter) {
	r := report(m, s.cfg.Now())
	if told.takes(r) {
		s.sessions.report(id, me, r)
	}
	if files.takes(m, r.At) {
		s.sessions.reportFiles(id, me, filesReport(m))
	}
}

func report(m *nstancev1.ReportHealthRequest, now time.Time) fleet.Report {
	r := fleet.Report{At: now, ReportInterval: reportInterval(m.GetReportInterval()), ShuttingDown: m.GetShuttingDown()}
	if n := m.GetTermination(); n != nil {
		r.Notice = &fleet.Notice{}
		if n.GetAt().IsValid() {
			r.Notice.At = n.GetAt().AsTime()
		}
	}
	return r
}

// maxReportInterval is the longest interval that an agent can be set up with.
const maxReportInterval = time.Hour

func reportInterval(d *durationpb.Duration) time.Duration {
	if !d.IsValid() {
		return 0
	}
	return min(max(d.AsDuration(), 0), maxReportInterval)
}

// minReportGap is half of the shortest interval that an agent can be set up
// with, so that a late report and a punctual one are both taken.
const minReportGap = 50 * time.Millisecond

// limiter keeps an agent that reports without a pause from keeping the shard busy.
// It is of one stream.
type limiter struct {
	at                      time.Time // of the last report taken
	shuttingDown, announced bool      // was said once
}

// takes reports whether the shard is to be told of r: not too soon after the last
// one, or the first to say that the end is near.
func (l *limiter) takes(r fleet.Report) bool {
	isNew := r.ShuttingDown && !l.shuttingDown || r.Notice != nil && !l.announced
	if gap := r.At.Sub(l.at); !isNew && gap >= 0 && gap < minReportGap {
		return false
	}
	l.at = r.At
	l.shuttingDown = l.shuttingDown || r.ShuttingDown
	l.announced = l.announced || r.Notice != nil
	return true
}
