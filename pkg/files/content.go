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

// CheckContent returns an error if content is invalid for a file with this name, which
// CheckName must have accepted. The format depends on the extension: .crt PEM certificates
// (RFC 7468, RFC 5280), .key and .pub PEM, .json a JSON value (RFC 8259), .env lines of
// NAME=value, .conf anything. The error never contains content.
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

// Digest returns the hex SHA-256 that identifies a file's content.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Leaf is what a report says about a certificate file.
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

// blocks returns the PEM blocks, at least one. Text between blocks is allowed, as in bundles,
// but not an incomplete block, which is a sign of a truncated file.
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

// certificates returns the certificates, at least one.
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
			return nil, fmt.Errorf("PEM block %d is not a certificate: %w", i+1, err)
		}
		certs = append(certs, cert)
	}
	return certs, nil
}

// checkJSON does not return the parser's error, which may quote a secret.
func checkJSON(content []byte) error {
	if !json.Valid(content) {
		return errors.New("not JSON: want one value (RFC 8259)")
	}
	return nil
}
