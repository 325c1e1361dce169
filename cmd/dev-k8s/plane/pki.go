package plane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/nstance/nstance/cmd/dev-k8s/kinds"
)

const (
	authorityLife   = 10 * 365 * 24 * time.Hour
	certificateLife = 365 * 24 * time.Hour
)

// pki is a folder of keys and certificates. The CA and the key that signs tokens last as long
// as the folder; everything else is created at each start.
type pki struct {
	folder string
	cert   *x509.Certificate
	key    crypto.Signer
	now    time.Time
}

func openPKI(folder string, now time.Time) (*pki, error) {
	p := &pki{folder: folder, now: now}
	var err error
	if p.key, err = p.keep("ca"); err != nil {
		return nil, err
	}
	if _, err := p.keep("sa"); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(p.path("ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		form := &x509.Certificate{
			Subject: pkix.Name{CommonName: "dev-k8s"}, NotAfter: now.Add(authorityLife), IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		}
		if text, err = p.sign(form, form, p.key.Public()); err == nil {
			err = kinds.WriteFile(p.path("ca.crt"), text)
		}
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not a certificate", p.path("ca.crt"))
	}
	p.cert, err = x509.ParseCertificate(block.Bytes)
	return p, err
}

func (p *pki) path(file string) string { return filepath.Join(p.folder, file) }

// keep returns the key of that name, created if missing.
func (p *pki) keep(name string) (crypto.Signer, error) {
	text, err := os.ReadFile(p.path(name + ".key"))
	if errors.Is(err, fs.ErrNotExist) {
		return p.newKey(name)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not a key", p.path(name+".key"))
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

func (p *pki) newKey(name string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, kinds.WriteFile(p.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func (p *pki) sign(form, parent *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	form.SerialNumber, form.NotBefore = serial, p.now.Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, form, parent, public, p.key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// server creates a server certificate, as {name}.crt and {name}.key.
func (p *pki) server(name, host string) error {
	form := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if ip := net.ParseIP(host); ip != nil {
		form.IPAddresses = append(form.IPAddresses, ip)
	}
	return p.issue(name, form)
}

// user creates the certificate of a user of these groups.
func (p *pki) user(name string, groups ...string) error {
	return p.issue(name, &x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (p *pki) issue(name string, form *x509.Certificate) error {
	key, err := p.newKey(name)
	if err != nil {
		return err
	}
	form.NotAfter, form.KeyUsage = p.now.Add(certificateLife), x509.KeyUsageDigitalSignature
	text, err := p.sign(form, p.cert, key.Public())
	if err != nil {
		return err
	}
	return kinds.WriteFile(p.path(name+".crt"), text)
}

// pool returns a pool with the CA.
func (p *pki) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.cert)
	return pool
}

// mutual returns the TLS config of a server that requires client certificates.
func (p *pki) mutual(name string) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(p.path(name+".crt"), p.path(name+".key"))
	return &tls.Config{
		Certificates: []tls.Certificate{own}, ClientCAs: p.pool(), ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}, err
}
