package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

// Endpoint creates the TLS configurations of one process. All are TLS 1.3 only and read Source
// at every handshake.
//
// All of them disable crypto/tls's own verification, because it fixes the roots when the
// configuration is created; VerifyConnection does all of it instead. crypto/tls also calls
// that for resumed sessions, with the certificates of the first handshake, so a session ticket
// bypasses no check: a certificate that has expired meanwhile, or whose CA was dropped, is
// refused. Servers issue no tickets anyway, because no Nstance client keeps them.
type Endpoint struct {
	Cluster string
	Source  *Source
	Now     func() time.Time
}

// RegistrationServer returns a config that requests no client certificate.
func (e Endpoint) RegistrationServer() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Time:                   e.Now,
		GetCertificate:         e.Source.serverCertificate,
		SessionTicketsDisabled: true,
	}
}

// Server returns a config that requires a client certificate of any member of the cluster. The
// service decides which role may call what, using ConnectionCaller.
func (e Endpoint) Server() *tls.Config {
	return e.mutual(func(Caller) error { return nil })
}

// PeerServer returns a config that requires the certificate of a server of the shard, or of
// any shard if empty. The calling side uses Client, with a Source that holds the server's own
// certificate.
func (e Endpoint) PeerServer(shard string) *tls.Config {
	return e.mutual(func(c Caller) error { return c.checkServer(shard) })
}

func (e Endpoint) mutual(accept func(Caller) error) *tls.Config {
	cfg := e.RegistrationServer()
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		caller, err := e.verify(state.PeerCertificates, x509.ExtKeyUsageClientAuth)
		if err != nil {
			return err
		}
		return accept(caller)
	}
	return cfg
}

// Client returns a config for dialling host, a DNS name or IP address without a port. It
// accepts only a server of the shard (of any shard if empty) whose certificate contains that
// host. It presents the Source's certificate, if any, when the server requests one.
//
// The host is fixed here instead of taken from the connection: crypto/tls drops IP addresses
// from ConnectionState.ServerName, and a check against an empty name would be no check. An
// empty host fails the handshake.
func (e Endpoint) Client(host, shard string) *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		Time:                 e.Now,
		ServerName:           host,
		InsecureSkipVerify:   true, // VerifyConnection verifies, with the current roots
		GetClientCertificate: e.Source.clientCertificate,
		VerifyConnection: func(state tls.ConnectionState) error {
			caller, err := e.verify(state.PeerCertificates, x509.ExtKeyUsageServerAuth)
			if err != nil {
				return err
			}
			if err := caller.checkServer(shard); err != nil {
				return err
			}
			return checkHost(state.PeerCertificates[0], host)
		},
	}
}

func (c Caller) checkServer(shard string) error {
	if c.Role != RoleServer {
		return fmt.Errorf("%w: %s %s of tenant %s, want a server", ErrWrongPeer, c.Role, c.ID, c.Tenant)
	}
	if shard != "" && c.Shard != shard {
		return fmt.Errorf("%w: a server of shard %q, want one of shard %q", ErrWrongPeer, c.Shard, shard)
	}
	return nil
}

func checkHost(cert *x509.Certificate, host string) error {
	if host == "" {
		return fmt.Errorf("%w: no host was given to check", ErrAddress)
	}
	if err := cert.VerifyHostname(host); err != nil {
		return fmt.Errorf("%w %q: %w", ErrAddress, host, err)
	}
	return nil
}
