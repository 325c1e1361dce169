package pki_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/pki"
)

func TestKeysSurviveEncoding(t *testing.T) {
	key := newKey(t, 1)
	text, err := pki.EncodePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pki.ParsePrivateKey(text); err != nil || !got.Equal(key) {
		t.Errorf("private key: got %v, want the key that was encoded", err)
	}
	text, err = pki.EncodePublicKey(pki.PublicKey(key))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pki.ParsePublicKey(text); err != nil || !got.Equal(key.Public()) {
		t.Errorf("public key: got %v, %v, want the key that was encoded", got, err)
	}
}

func TestGenerateKeyNeedsRandomness(t *testing.T) {
	if _, err := pki.GenerateKey(strings.NewReader("short")); err == nil {
		t.Error("a key was made from too little randomness")
	}
}

func TestPublicKeySHA256IsOfThePKIXForm(t *testing.T) {
	pub := pki.PublicKey(newKey(t, 1))
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(der)
	if got, want := pki.PublicKeySHA256(pub), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRefusedPEM(t *testing.T) {
	cert := string(pki.EncodeCertificate(newCA(t, cluster, 1).Certificate()))
	private, err := pki.EncodePrivateKey(newKey(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pkix := func(k any) string { der, err := x509.MarshalPKIXPublicKey(k); return block("PUBLIC KEY", der, err) }
	pkcs8 := func(k any) string { der, err := x509.MarshalPKCS8PrivateKey(k); return block("PRIVATE KEY", der, err) }

	certificate := func(b []byte) error { _, err := pki.ParseCertificate(b); return err }
	bundle := func(b []byte) error { _, err := pki.ParseBundle(b); return err }
	privateKey := func(b []byte) error { _, err := pki.ParsePrivateKey(b); return err }
	publicKey := func(b []byte) error { _, err := pki.ParsePublicKey(b); return err }
	agent := string(pki.EncodeCertificate(agentPair(t, newCA(t, cluster, 1)).Certificate()))

	for name, c := range map[string]struct {
		parse func([]byte) error
		in    string
		want  string
	}{
		"nothing":                 {certificate, "", "got nothing"},
		"no PEM":                  {certificate, "hello", "without other text"},
		"two certificates":        {certificate, cert + cert, "want one CERTIFICATE block, got 2"},
		"certificate of garbage":  {certificate, block("CERTIFICATE", []byte("x"), nil), "x509"},
		"text before":             {bundle, "subject=x\n" + cert, "without other text"},
		"text between":            {bundle, cert + "oops\n" + cert, "block 2"},
		"text after":              {bundle, cert + "oops", "block 2"},
		"a broken block skipped":  {bundle, "-----BEGIN CERTIFICATE-----\n@@\n" + cert, "block 1"},
		"half a block":            {bundle, cert[:len(cert)/2], "block 1"},
		"headers":                 {bundle, strings.Replace(cert, "-----\n", "-----\nA: b\n\n", 1), "no headers"},
		"a key in a bundle":       {bundle, cert + string(private), `got "PRIVATE KEY"`},
		"a leaf in a bundle":      {bundle, cert + agent, "certificate 2"},
		"a bundle of 1 MiB":       {bundle, strings.Repeat(cert, 1<<20/len(cert)), "want at most 65536"},
		"private key is public":   {privateKey, pkix(newKey(t, 1).Public()), `got "PUBLIC KEY"`},
		"private key on P-256":    {privateKey, pkcs8(ec), "got ECDSA on P-256"},
		"private key of RSA":      {privateKey, pkcs8(rsaKey), "got RSA of 2048 bits"},
		"private key of garbage":  {privateKey, block("PRIVATE KEY", []byte("sesame"), nil), "not a PKCS #8 private key"},
		"two private keys":        {privateKey, string(private) + string(private), "got 2"},
		"public key is private":   {publicKey, string(private), `got "PRIVATE KEY"`},
		"public key on P-256":     {publicKey, pkix(&ec.PublicKey), "got ECDSA on P-256"},
		"public key of RSA":       {publicKey, pkix(&rsaKey.PublicKey), "got RSA of 2048 bits"},
		"public key of garbage":   {publicKey, block("PUBLIC KEY", []byte("x"), nil), "malformed"},
		"public key is a request": {publicKey, block("CERTIFICATE REQUEST", []byte("x"), nil), `got "CERTIFICATE REQUEST"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.parse([]byte(c.in))
			if !errors.Is(err, pki.ErrMalformed) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want a malformed PEM error with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error shows the input or is not one line: %q", err)
			}
		})
	}
}

func FuzzParsePEM(f *testing.F) {
	cert := pki.EncodeCertificate(newCA(f, cluster, 1).Certificate())
	private, _ := pki.EncodePrivateKey(newKey(f, 1))
	public, _ := pki.EncodePublicKey(pki.PublicKey(newKey(f, 1)))
	for _, seed := range [][]byte{cert, append(bytes.Clone(cert), cert...), private, public, cert[:100], nil,
		[]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if b, err := pki.ParseBundle(in); err == nil {
			again, err := pki.ParseBundle(b.PEM())
			if err != nil || len(again.Certificates()) != len(b.Certificates()) || len(b.Certificates()) == 0 {
				t.Errorf("a bundle of %d came back as %v, %v", len(b.Certificates()), again, err)
			}
		} else if !errors.Is(err, pki.ErrMalformed) {
			t.Errorf("bundle: %v is not ErrMalformed", err)
		}
		if key, err := pki.ParsePrivateKey(in); err == nil {
			text, err := pki.EncodePrivateKey(key)
			if again, err2 := pki.ParsePrivateKey(text); err != nil || err2 != nil || !again.Equal(key) {
				t.Errorf("a private key did not survive encoding: %v, %v", err, err2)
			}
		}
		if key, err := pki.ParsePublicKey(in); err == nil {
			text, err := pki.EncodePublicKey(key)
			if again, err2 := pki.ParsePublicKey(text); err != nil || err2 != nil || !again.Equal(key) {
				t.Errorf("a public key did not survive encoding: %v, %v", err, err2)
			}
		}
		if c, err := pki.ParseCertificate(in); err == nil {
			if _, err := pki.ParseCaller(c, cluster); err != nil && !errors.Is(err, pki.ErrIdentity) {
				t.Errorf("caller: %v is not ErrIdentity", err)
			}
		}
	})
}
