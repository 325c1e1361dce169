package files

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"time"
)

// CheckContent reports why content can't be that of a file called name, which
// CheckName has accepted; nil when it can. What it wants depends on the
// extension: .crt PEM certificates (RFC 7468, RFC 5280), .key and .pub PEM,
// .json a JSON value (RFC 8259), .env lines of NAME=value, .conf anything. The
// error never shows content.
func CheckContent(name string, content []byte) error {
	if len(content) > MaxFileSize {
		return fmt.Errorf("%d bytes: at most %d are allowed", len(content), MaxFileSize)
	}
	switch path.Ext(name) {
	case ".crt":
		_, err := certificates(content)
		return err
	case ".key", ".pub":
		_, err := blocks(content)
		return err
	case ".json":
		return checkJSON(content)
	case ".env":
		return checkEnv(content)
	}
	return nil
}

// Digest is the hex SHA-256 by which a file's content is known.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Leaf is what is said of a certificate file.
type Leaf struct {
	NotAfter        time.Time
	PublicKeySHA256 string // hex, of the key's PKIX form in DER
}

// ReadLeaf reads the first certificate of a .crt file.
func ReadLeaf(content []byte) (Leaf, error) {
	certs, err := certificates(content)
	if err != nil {
		return Leaf{}, err
	}
	return Leaf{NotAfter: certs[0].NotAfter, PublicKeySHA256: Digest(certs[0].RawSubjectPublicKeyInfo)}, nil
}

var errNoPEM = errors.New("want PEM blocks (RFC 7468), each whole, at least one")

// blocks returns the PEM blocks; there is at least one. Text between blocks is
// allowed, as bundles have it, but no block that has begun and is not whole: that
// is what a file cut short looks like.
func blocks(content []byte) ([]*pem.Block, error) {
	var all []*pem.Block
	for rest := content; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		all = append(all, block)
	}
	if len(all) == 0 || len(all) != bytes.Count(content, []byte("-----BEGIN ")) {
		return nil, errNoPEM
	}
	return all, nil
}

// certificates returns the certificates; there is at least one.
func certificates(content []byte) ([]*x509.Certificate, error) {
	all, err := blocks(content)
	if err != nil {
		return nil, err
	}
	certs := make([]*x509.Certificate, 0, len(all))
	for i, block := range all {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("PEM block %d is %.40q: want CERTIFICATE", i+1, block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d is no certificate: %w", i+1, err)
		}
		certs = append(certs, cert)
	}
	return certs, nil
}

// checkJSON does not repeat what the parser says: that may quote a secret.
func checkJSON(content []byte) error {
	if !json.Valid(content) {
		return errors.New("not JSON: want one value (RFC 8259)")
	}
	return nil
}
