package agent

import (
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/pki"
)

// tracker keeps the status and its file up to date. A failure to write the status is logged
// once, and reported: the disk of the machine is full, read-only or broken. Safe for concurrent use.
type tracker struct {
	folder identity.Files
	now    func() time.Time
	logger *slog.Logger

	mu          sync.Mutex
	status      Status
	disconnects uint64
	broken      error // why the last write failed; nil: it succeeded
}

func newTracker(c Config) *tracker {
	now := c.Now()
	t := &tracker{
		folder: identity.Files{Dir: c.IdentityDir, Mode: c.IdentityMode},
		now:    c.Now,
		logger: c.Logger,
		status: Status{
			InstanceID: string(c.InstanceID),
			Version:    c.Version,
			PID:        os.Getpid(),
			StartedAt:  now.UTC(),
			State:      StateStarting,
		},
	}
	t.change(func(*Status) {})
	return t
}

// change applies one change and writes the file.
func (t *tracker) change(apply func(*Status)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	apply(&t.status)
	t.status.UpdatedAt = t.now().UTC()
	data, err := json.MarshalIndent(t.status, "", "  ")
	if err == nil {
		err = t.folder.WriteFast(statusFile, append(data, '\n'))
	}
	if err != nil && t.broken == nil {
		t.logger.Warn("could not write the status file", slog.Any("error", err))
	}
	t.broken = err
}

// writeError returns why the status can't be written; empty: it can.
func (t *tracker) writeError() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil {
		return ""
	}
	return t.broken.Error()
}

// current returns a copy of the status.
func (t *tracker) current() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Streams = maps.Clone(s.Streams)
	return s
}

// counted returns a copy of the status, and the number of disconnects.
func (t *tracker) counted() (s Status, disconnects uint64) {
	s = t.current()
	t.mu.Lock()
	defer t.mu.Unlock()
	return s, t.disconnects
}

func (t *tracker) enter(state State) {
	t.change(func(s *Status) { s.State, s.Reason = state, "" })
}

func (t *tracker) failed(state State, err error) {
	t.change(func(s *Status) { s.State, s.Reason = state, err.Error() })
}

func (t *tracker) belongs(h home) {
	t.change(func(s *Status) { s.ServerID = h.String() })
}

func (t *tracker) registered(cert *x509.Certificate) {
	t.change(func(s *Status) {
		expires := cert.NotAfter.UTC()
		s.CertificateSerial, s.CertificateExpiresAt = pki.SerialHex(cert), &expires
	})
}

func (t *tracker) stopped() {
	t.change(func(s *Status) {
		s.State, s.Server, s.Streams = StateStopped, "", nil
	})
}

// observe updates the status from events of Hold.
func (t *tracker) observe(e Event) {
	t.change(func(s *Status) {
		switch e.Kind {
		case StreamOpened:
			s.stream(e, streamOpen)
			if e.Stream == StreamHealth {
				s.State, s.Reason = StateConnected, ""
			}
		case StreamClosed:
			s.stream(e, "closed")
		case StreamUnserved:
			s.stream(e, "not served")
		case Reported:
			s.LastReport = &LastReport{Sequence: e.Sequence, At: t.now().UTC()}
			s.ConfigHash, s.Files = e.Report.GetConfigHash(), shown(e.Report.GetFiles())
		case Disconnected:
			t.disconnects++
			s.State, s.Server, s.Streams = StateConnecting, "", nil
			s.Reason = e.Err.Error()
			if end := s.CertificateExpiresAt; end != nil && t.now().After(*end) {
				s.State, s.Reason = StateExpired, expiredText(*end)+": "+s.Reason
			}
		}
	})
}

func (s *Status) stream(e Event, state string) {
	if s.Streams == nil {
		s.Streams = make(map[string]string)
	}
	s.Server, s.Streams[e.Stream] = e.Server, state
}
