package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

// Endpoint makes the TLS configurations of one process. All are TLS 1.3 only
// and read Source at every handshake.
//
// crypto/tls's own verification is off in all of them, because it fixes the
// roots when the configuration is made; VerifyConnection does the whole of it
// instead. crypto/tls calls that for resumed sessions too, with the certificates
// of the first handshake, so a session ticket bypasses no check: a certificate
// that has expired meanwhile, or whose CA was dropped, is refused all the same.
// Servers give out no tickets anyway, because no client of ours keeps them.
type Endpoint struct {
	Cluster string
	Source  *Source
	Now     func() time.Time
}

// RegistrationServer asks for no client certificate.
func (e Endpoint) RegistrationServer() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Time:                   e.Now,
		GetCertificate:         e.Source.serverCertificate,
		SessionTicketsDisabled: true,
	}
}

// Server demands a client certificate of any member of the cluster. Which role
// may call what is the service's to decide, from ConnectionCaller.
func (e Endpoint) Server() *tls.Config {
	return e.mutual(func(Caller) error { return nil })
}

// PeerServer demands the certificate of a server of the shard, or of any shard
// when that is empty. The calling side is Client, with a Source that holds the
// server's own certificate.
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

// Client dials host, a DNS name or IP address without a port, and accepts only a
// server of the shard (of any shard when that is empty) whose certificate names
// that host. It shows the Source's certificate when there is one and the server
// asks.
//
// The host is fixed here rather than taken from the connection: crypto/tls drops
// IP addresses from ConnectionState.ServerName, and a check against an empty
// name would be no check. An empty host fails the handshake.
func (e Endpoint) Client(host, shard string) *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		Time:                 e.Now,
		ServerName:           host,
		InsecureSkipVerify:   true, // VerifyConnection verifies, with the roots of the moment
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
		return fmt.Errorf("%w: no host was given to check it against", ErrAddress)
	}
	if err := cert.VerifyHostname(host); err != nil {
		return fmt.Errorf("%w %q: %w", ErrAddress, host, err)
	}
	return nil
}
