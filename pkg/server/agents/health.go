package agents

import (
	"errors"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ReportHealth receives an agent's reports until the stream ends.
func (s *Service) ReportHealth(stream nstancev1.AgentService_ReportHealthServer) error {
	var in entered
	var me *session
	if err := rpc.Aside(func() (err error) {
		if in, err = s.enter(stream.Context()); err != nil {
			return err
		}
		if me, err = s.sessions.open(stream.Context(), in.id, in.shard); err != nil {
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

// receive passes reports on until the agent closes the stream (nil) or the stream breaks.
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

// hear passes on one report.
func (s *Service) hear(id fleet.InstanceID, me *session, m *nstancev1.ReportHealthRequest, told *limiter, files *filesLimiter) {
	r := report(m, s.cfg.Now())
	if told.allows(r) {
		s.sessions.report(id, me, r)
	}
	if files.allows(m, r.At) {
		s.sessions.reportFiles(id, me, filesReport(m))
	}
}

func report(m *nstancev1.ReportHealthRequest, now time.Time) fleet.Report {
	r := fleet.Report{
		At: now, ClockAhead: clockAhead(m, now), ReportInterval: reportInterval(m.GetReportInterval()), ShuttingDown: m.GetShuttingDown(),
		WriteError: writeError(m.GetWriteError()), WithoutFiles: m.GetConfigHash() == "",
	}
	if n := m.GetTermination(); n != nil {
		r.Notice = &fleet.Notice{}
		if n.GetAt().IsValid() {
			r.Notice.At = n.GetAt().AsTime()
		}
	}
	return r
}

// clockAhead returns how far an agent's clock is ahead, to which the way of its report is added.
func clockAhead(m *nstancev1.ReportHealthRequest, now time.Time) time.Duration {
	if !m.GetSentAt().IsValid() {
		return 0
	}
	return m.GetSentAt().AsTime().Sub(now.Round(0))
}

// maxWriteError bounds the text of an agent, in bytes.
const maxWriteError = 300

// writeError returns an agent's text as it is shown: one line without control characters.
func writeError(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxWriteError)], "")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// maxReportInterval is the longest report interval that an agent can be configured with.
const maxReportInterval = time.Hour

func reportInterval(d *durationpb.Duration) time.Duration {
	if !d.IsValid() {
		return 0
	}
	return min(max(d.AsDuration(), 0), maxReportInterval)
}

// minReportGap is half of the shortest report interval that an agent can be configured with,
// so that jitter does not drop reports.
const minReportGap = 50 * time.Millisecond

// limiter rate-limits an agent's reports. Used by one stream.
type limiter struct {
	at                      time.Time // of the last report passed on
	shuttingDown, announced bool      // already reported once
	furnished               bool      // already reported with files
}

// allows reports whether r is passed on to the shard: the gap since the last report has
// passed, or r is the first to announce a shutdown or a termination, or to have files.
func (l *limiter) allows(r fleet.Report) bool {
	isNew := r.ShuttingDown && !l.shuttingDown || r.Notice != nil && !l.announced || !r.WithoutFiles && !l.furnished
	if gap := r.At.Sub(l.at); !isNew && gap >= 0 && gap < minReportGap {
		return false
	}
	l.at = r.At
	l.shuttingDown = l.shuttingDown || r.ShuttingDown
	l.announced = l.announced || r.Notice != nil
	l.furnished = l.furnished || !r.WithoutFiles
	return true
}
