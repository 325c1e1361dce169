package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/pki"
)

// Files beside the identity.
const (
	nonceFile  = "nonce.jwt"
	homeFile   = "server.id"
	statusFile = "status.json"
)

// membership is the contents of the identity directory: the identity and its shard.
type membership struct {
	*identity.Identity
	folder     identity.Folder
	home       home
	nonce      string    // for this instance; empty: spent, or never given
	foreign    string    // the nonce's instance, if it is another one
	ends       time.Time // when the nonce expires; zero: unknown
	registered bool      // there is a usable certificate
}

// finalError is an error that neither a retry nor a restart changes.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// openMembership reads the directory. An unusable certificate counts as missing while there is
// a nonce to get another one, and is a final error otherwise.
func openMembership(ctx context.Context, c Config) (*membership, error) {
	m := &membership{folder: identity.Folder{Files: identity.Files{Dir: c.IdentityDir, Mode: c.IdentityMode}}}
	if err := m.readHome(c.InstanceID); err != nil {
		return nil, err
	}
	if err := m.folder.FinishPromotion(); err != nil {
		return nil, err
	}
	if err := m.claimFolder(ctx, c); err != nil {
		return nil, err
	}
	id, err := identity.Open(ctx, identity.Config{
		Store: m.folder, Cluster: m.home.cluster, Now: c.Now, Entropy: c.Entropy,
		Want: func(caller pki.Caller) error {
			if caller.Role != pki.RoleAgent || caller.ID != string(c.InstanceID) {
				return fmt.Errorf("the certificate is for %s %s: want agent %s", caller.Role, caller.ID, c.InstanceID)
			}
			return nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", c.IdentityDir, err)
	}
	m.Identity = id
	problem := m.problem(c.Now())
	m.registered = problem == nil
	switch {
	case problem == nil && m.home == (home{}):
		return nil, fmt.Errorf("%s is missing, and the existing %s is for instance %.80s", m.folder.Path(homeFile), nonceFile, m.foreign)
	case problem != nil && m.nonce == "":
		return nil, &finalError{fmt.Errorf("read %s: %w, and there is no %s to register again with%s",
			c.IdentityDir, problem, nonceFile, m.foreignText())}
	case problem != nil && m.has(identity.CertificateName):
		c.Logger.LogAttrs(ctx, slog.LevelWarn, "registering again", slog.Any("reason", problem))
	}
	return m, nil
}

// claimFolder sets aside another instance's identity if there is a nonce for this instance,
// and records this instance as the owner of the directory.
func (m *membership) claimFolder(ctx context.Context, c Config) error {
	text, err := m.folder.Read(identity.CertificateName)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	of := certificateOwner(text)
	if of == "" {
		if of, err = owner(m.folder.Files); err != nil {
			return err
		}
	}
	switch {
	case of == "" || of == c.InstanceID:
		return m.record(c.InstanceID)
	case m.nonce == "":
		return &finalError{fmt.Errorf("%s holds the identity of instance %s, and there is no nonce for this instance, %s, in %s%s",
			c.IdentityDir, of, c.InstanceID, nonceFile, m.foreignText())}
	default:
		if err := c.disown(ctx, of); err != nil {
			return err
		}
		return m.keepHome()
	}
}

// record writes the owner record of the directory, if it is missing or differs.
func (m *membership) record(id fleet.InstanceID) error {
	if recorded, err := owner(m.folder.Files); err != nil || recorded == id {
		return err
	}
	if err := m.folder.Write(ownerFile, []byte(id+"\n"), m.folder.Mode); err != nil {
		return fmt.Errorf("write the owner record of %s: %w", m.folder.Dir, err)
	}
	return nil
}

func (m *membership) foreignText() string {
	if m.foreign == "" {
		return ""
	}
	return fmt.Sprintf(": the existing %s is for instance %.80s", nonceFile, m.foreign)
}

// problem returns why there is no usable certificate. If there is no nonce, the dates are not
// checked: the local clock may be wrong, so the server decides.
func (m *membership) problem(now time.Time) error {
	if err := m.Problem(); err != nil {
		return err
	}
	if m.nonce == "" {
		now = time.Time{}
	}
	return m.Verify(now)
}

// has reports whether a file exists, readable or not.
func (m *membership) has(name string) bool {
	text, err := m.folder.Read(name)
	return err != nil || text != nil
}

// readHome reads the nonce, and the agent's shard from it or, once it is spent, from the
// stored copy.
func (m *membership) readHome(id fleet.InstanceID) error {
	if !m.has(identity.CAsName) {
		return fmt.Errorf("%s is missing: userdata must put the cluster's CA certificates there", m.folder.Path(identity.CAsName))
	}
	nonce, err := m.folder.Read(nonceFile)
	if err != nil {
		return fmt.Errorf("read the registration nonce: %w", err)
	}
	m.nonce = string(bytes.TrimSpace(nonce))
	if m.nonce != "" {
		c, err := readNonce(m.nonce)
		if err != nil {
			return fmt.Errorf("read %s: %w", m.folder.Path(nonceFile), err)
		}
		m.home, m.ends = c.home, c.ends
		if c.instance == "" || c.instance == string(id) {
			return m.keepHome()
		}
		// Spending it here would take it from the machine that it was created for.
		m.nonce, m.foreign = "", c.instance
	}
	kept, err := m.folder.Read(homeFile)
	if err != nil {
		return fmt.Errorf("read the server's SPIFFE ID: %w", err)
	}
	if kept == nil && m.foreign != "" {
		return nil // the shard is unknown, but there is nothing that needs it
	}
	if kept == nil {
		return fmt.Errorf("%s is missing: userdata must put the registration nonce there", m.folder.Path(nonceFile))
	}
	if m.home, err = parseHome(string(kept)); err != nil {
		return fmt.Errorf("read %s: %w", m.folder.Path(homeFile), err)
	}
	return nil
}

func (m *membership) keepHome() error {
	if err := m.folder.Write(homeFile, []byte(m.home.String()+"\n"), m.folder.Mode); err != nil {
		return fmt.Errorf("store the server's SPIFFE ID: %w", err)
	}
	return nil
}

// spend deletes the nonce.
func (m *membership) spend() error {
	if err := m.folder.Remove(nonceFile); err != nil {
		return fmt.Errorf("delete the spent registration nonce: %w", err)
	}
	m.nonce = ""
	return nil
}
