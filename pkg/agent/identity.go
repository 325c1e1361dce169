package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/pki"
)

// The files that an agent has beside its identity.
const (
	nonceFile  = "nonce.jwt"
	homeFile   = "server.id"
	statusFile = "status.json"
)

// membership is what the identity directory holds: the identity, and the shard that
// it is for.
type membership struct {
	*identity.Identity
	folder     identity.Folder
	home       home
	nonce      string    // empty: spent, or never given
	ends       time.Time // when the nonce's life does; zero: not known
	registered bool      // there is a certificate to use
}

// finalError is what neither time nor a restart changes.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// openMembership reads the directory. A certificate that can't be used is as good
// as none while there is a nonce to get another with, and final when there is not.
func openMembership(ctx context.Context, c Config) (*membership, error) {
	m := &membership{folder: identity.Folder{Files: identity.Files{Dir: c.IdentityDir, Mode: c.IdentityMode}}}
	if err := m.readHome(); err != nil {
		return nil, err
	}
	if err := m.folder.Settle(); err != nil {
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
	case problem != nil && m.nonce == "":
		return nil, &finalError{fmt.Errorf("read %s: %w, and there is no %s to register again with", c.IdentityDir, problem, nonceFile)}
	case problem != nil && m.has(identity.CertificateName):
		c.Logger.LogAttrs(ctx, slog.LevelWarn, "registering again", slog.Any("reason", problem))
	}
	return m, nil
}

// problem is why there is no certificate to use. Where there is no other to be
// had its dates don't count: the clock may be what is wrong, so the server judges.
func (m *membership) problem(now time.Time) error {
	if err := m.Problem(); err != nil {
		return err
	}
	if m.nonce == "" {
		now = time.Time{}
	}
	return m.Verify(now)
}

// has reports whether a file is there, even one that can't be read.
func (m *membership) has(name string) bool {
	text, err := m.folder.Read(name)
	return err != nil || text != nil
}

// readHome reads the nonce, and where the agent belongs from it or, once it is
// spent, from what was kept of it.
func (m *membership) readHome() error {
	if !m.has(identity.CAsName) {
		return fmt.Errorf("%s is missing: userdata must put the cluster's CA certificates there", m.folder.Path(identity.CAsName))
	}
	nonce, err := m.folder.Read(nonceFile)
	if err != nil {
		return fmt.Errorf("read the registration nonce: %w", err)
	}
	m.nonce = string(bytes.TrimSpace(nonce))
	if m.nonce != "" {
		if m.home, m.ends, err = readNonce(m.nonce); err != nil {
			return fmt.Errorf("read %s: %w", m.folder.Path(nonceFile), err)
		}
		return m.keepHome()
	}
	kept, err := m.folder.Read(homeFile)
	if err != nil {
		return fmt.Errorf("read the server's SPIFFE id: %w", err)
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
		return fmt.Errorf("keep the server's SPIFFE id: %w", err)
	}
	return nil
}

// spend forgets the nonce.
func (m *membership) spend() error {
	if err := m.folder.Remove(nonceFile); err != nil {
		return fmt.Errorf("delete the spent registration nonce: %w", err)
	}
	m.nonce = ""
	return nil
}
