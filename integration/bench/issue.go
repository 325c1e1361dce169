package main

import (
	"crypto/rand"
	"crypto/x509"
	"io"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
)

// issue creates a client identity with the cluster's own CA, where registration is not measured.
func issue(sign func(pki.ClientRequest, io.Reader) (*x509.Certificate, error), id fleet.InstanceID) (*pki.Keypair, error) {
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	cert, err := sign(pki.ClientRequest{
		Tenant: fleet.DefaultTenant, ID: string(id), PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: time.Hour,
	}, rand.Reader)
	if err != nil {
		return nil, err
	}
	return pki.NewKeypair(cert, key)
}
