package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nstance/nstance/pkg/identity"
)

// Status is the agent's state. The running agent stores it in the identity directory, for
// users of the machine.
type Status struct {
	InstanceID string    `json:"instance_id"`
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	StartedAt  time.Time `json:"started_at"`
	UpdatedAt  time.Time `json:"updated_at"`

	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // why it is not connected

	ServerID             string     `json:"server_id,omitempty"` // SPIFFE ID of the servers
	CertificateSerial    string     `json:"certificate_serial,omitempty"`
	CertificateExpiresAt *time.Time `json:"certificate_expires_at,omitempty"`

	Server     string            `json:"server,omitempty"` // the address connected to
	Streams    map[string]string `json:"streams,omitempty"`
	LastReport *LastReport       `json:"last_report,omitempty"`

	ConfigHash string       `json:"config_hash,omitempty"` // of the set of files in place
	Files      []FileStatus `json:"files,omitempty"`       // as last reported
}

// FileStatus is the last reported status of a received file.
type FileStatus struct {
	Name      string     `json:"name"`
	State     string     `json:"state"` // present, missing or failed
	SHA256    string     `json:"sha256,omitempty"`
	Error     string     `json:"error,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // of a certificate
}

// State is the state of an agent.
type State string

// The states.
const (
	StateStarting    State = "starting"
	StateRegistering State = "registering"
	StateRejected    State = "rejected" // the nonce was refused, finally
	StateConnecting  State = "connecting"
	StateConnected   State = "connected"
	StateExpired     State = "expired" // the certificate expired while no server was reachable
	StateStopped     State = "stopped"
)

// states returns all states.
func states() []State {
	return []State{StateStarting, StateRegistering, StateRejected, StateConnecting, StateConnected, StateExpired, StateStopped}
}

// streamOpen is the state of an open stream.
const streamOpen = "open"

// The states of files.
const (
	filePresent = "present"
	fileMissing = "missing"
	fileFailed  = "failed"
)

// LastReport is the last health report that was sent.
type LastReport struct {
	Sequence uint64    `json:"sequence"`
	At       time.Time `json:"at"`
}

// ReadStatus reads the status last written to dir. The error matches fs.ErrNotExist if no
// agent has run there.
func ReadStatus(dir string) (Status, error) {
	folder := identity.Files{Dir: dir}
	data, err := folder.Read(statusFile)
	if err == nil && data == nil {
		err = &fs.PathError{Op: "open", Path: folder.Path(statusFile), Err: fs.ErrNotExist}
	}
	if err != nil {
		return Status{}, fmt.Errorf("read the agent's status: %w", err)
	}
	var s Status
	if err := json.Unmarshal(data, &s); err != nil {
		return Status{}, fmt.Errorf("read the agent's status: %w", err)
	}
	return s, nil
}

// WriteText writes s as text for users, as of now. running: the process of s is alive;
// otherwise s is its last state.
func (s Status) WriteText(w io.Writer, now time.Time, running bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s:\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("Instance", "%s", s.InstanceID)
	row("Version", "%s", s.Version)
	if running {
		row("Process", "%d, for %s", s.PID, age(now, s.StartedAt))
	} else {
		row("Process", "not running; what follows is from %s ago", age(now, s.UpdatedAt))
	}
	row("State", "%s", s.State)
	if s.Reason != "" {
		row("Reason", "%s", s.Reason)
	}
	if s.ServerID != "" {
		row("Belongs to", "%s", s.ServerID)
	}
	if s.CertificateExpiresAt != nil {
		row("Certificate", "%s", s.certificate(now))
	}
	if s.Server != "" {
		row("Server", "%s", s.Server)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Streams)) {
		row("Stream", "%s %s", name, s.Streams[name])
	}
	if s.LastReport != nil {
		row("Last report", "number %d, %s ago", s.LastReport.Sequence, age(now, s.LastReport.At))
	}
	if s.ConfigHash != "" {
		row("Config hash", "%s", s.ConfigHash)
	}
	for _, f := range s.Files {
		row("File", "%s", f.text(now))
	}
	return t.Flush()
}

func (f FileStatus) text(now time.Time) string {
	switch {
	case f.Error != "":
		return fmt.Sprintf("%s %s: %s", f.Name, f.State, f.Error)
	case f.ExpiresAt == nil:
		return fmt.Sprintf("%s %s", f.Name, f.State)
	case now.After(*f.ExpiresAt):
		return fmt.Sprintf("%s %s, EXPIRED %s ago", f.Name, f.State, age(now, *f.ExpiresAt))
	default:
		return fmt.Sprintf("%s %s, expires in %s", f.Name, f.State, age(*f.ExpiresAt, now))
	}
}

func (s Status) certificate(now time.Time) string {
	at := s.CertificateExpiresAt.UTC().Format(time.RFC3339)
	if now.After(*s.CertificateExpiresAt) {
		return fmt.Sprintf("serial %s, EXPIRED %s ago (%s)", s.CertificateSerial, age(now, *s.CertificateExpiresAt), at)
	}
	return fmt.Sprintf("serial %s, expires in %s (%s)", s.CertificateSerial, age(*s.CertificateExpiresAt, now), at)
}

func age(now, then time.Time) time.Duration { return max(now.Sub(then), 0).Round(time.Second) }
