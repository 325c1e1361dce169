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

// Status is what an agent knows about itself. The running agent keeps it in the
// identity directory, for a person on the machine.
type Status struct {
	InstanceID string    `json:"instance_id"`
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	StartedAt  time.Time `json:"started_at"`
	UpdatedAt  time.Time `json:"updated_at"`

	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // why it is not connected

	ServerID             string     `json:"server_id,omitempty"` // the SPIFFE id that servers must show
	CertificateSerial    string     `json:"certificate_serial,omitempty"`
	CertificateExpiresAt *time.Time `json:"certificate_expires_at,omitempty"`

	Server     string            `json:"server,omitempty"` // the address connected to
	Streams    map[string]string `json:"streams,omitempty"`
	LastReport *LastReport       `json:"last_report,omitempty"`

	ConfigHash string       `json:"config_hash,omitempty"` // of the set of files in place
	Files      []FileStatus `json:"files,omitempty"`       // as last reported
}

// FileStatus is what was last reported of a received file.
type FileStatus struct {
	Name      string     `json:"name"`
	State     string     `json:"state"` // present, missing or failed
	SHA256    string     `json:"sha256,omitempty"`
	Error     string     `json:"error,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // of a certificate
}

// State is where an agent is in its life.
type State string

// The states.
const (
	StateStarting    State = "starting"
	StateRegistering State = "registering"
	StateRejected    State = "rejected" // the nonce was refused: nothing will change
	StateConnecting  State = "connecting"
	StateConnected   State = "connected"
	StateExpired     State = "expired" // the certificate ended while no server could be reached
	StateStopped     State = "stopped"
)

// LastReport is the last health report that was sent.
type LastReport struct {
	Sequence uint64    `json:"sequence"`
	At       time.Time `json:"at"`
}

// ReadStatus reads what the agent that uses dir last wrote. The error matches
// fs.ErrNotExist when none has ever run there.
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

// WriteText writes s for a person, as of now. running says whether the process
// of s lives: when it does not, s is only what it left.
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
