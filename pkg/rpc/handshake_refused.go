package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/pki"
)

// peerError is the error of a handshake refused after the peer sent certificates.
type peerError struct {
	certificate *x509.Certificate
	err         error
}

func (e *peerError) Error() string { return e.err.Error() }
func (e *peerError) Unwrap() error { return e.err }

// showing returns the configuration with errors that include the refused certificate, which
// crypto/tls omits.
func showing(config *tls.Config) *tls.Config {
	verify := config.VerifyConnection
	if verify == nil {
		return config
	}
	config = config.Clone()
	config.VerifyConnection = func(state tls.ConnectionState) error {
		err := verify(state)
		if err != nil && len(state.PeerCertificates) > 0 {
			return &peerError{state.PeerCertificates[0], err}
		}
		return err
	}
	return config
}

// refusedHandshake returns the event of a failed handshake; ok is false if the peer merely
// disconnected, such as a port check.
func refusedHandshake(listener string, conn net.Conn, err error) (e audit.Event, ok bool) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, context.Canceled) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return audit.Event{}, false
	}
	e = audit.Event{Kind: audit.Handshake, Outcome: audit.Refused, Action: listener, Reason: err.Error()}
	if listener == "" {
		e.Action = conn.LocalAddr().String()
	}
	if from := conn.RemoteAddr(); from != nil {
		e.From = from.String()
	}
	if shown := (*peerError)(nil); errors.As(err, &shown) {
		e.Claims = claimsOf(shown.certificate)
	}
	return e, true
}

// claimsOf returns the unverified contents of a certificate.
func claimsOf(c *x509.Certificate) []audit.Detail {
	claims := []audit.Detail{
		{Name: "subject", To: c.Subject.String()}, {Name: "issuer", To: c.Issuer.String()}, {Name: "serial", To: pki.SerialHex(c)},
	}
	for _, uri := range c.URIs {
		claims = append(claims, audit.Detail{Name: "uri", To: uri.String()})
	}
	return claims
}
