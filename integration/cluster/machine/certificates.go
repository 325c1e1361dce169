//go:build linux

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// authority signs all certificates of a cluster.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  pair
}

// pair is a certificate and its key in PEM.
type pair struct{ cert, key []byte }

const lifetime = 30 * 24 * time.Hour

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key}
	template := base(pkix.Name{CommonName: "kubernetes"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	a.cert = template
	a.pem, err = a.sign(template, key)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(a.pem.cert)
	a.cert, err = x509.ParseCertificate(block.Bytes)
	return a, err
}

func base(subject pkix.Name) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // it never fails
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

// issue creates a key and a certificate for it. Names may be addresses.
func (a *authority) issue(user, group string, names ...string) (pair, error) {
	subject := pkix.Name{CommonName: user}
	if group != "" {
		subject.Organization = []string{group}
	}
	template := base(subject)
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	return a.sign(template, key)
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
	}, nil
}

// kubeconfig returns a kubeconfig with a certificate of its own.
func (a *authority) kubeconfig(server, user, group string) ([]byte, error) {
	own, err := a.issue(user, group)
	if err != nil {
		return nil, err
	}
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: default
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: default
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: default
  context:
    cluster: default
    user: default
current-context: default
`, server, b64(a.pem.cert), b64(own.cert), b64(own.key)), nil
}
