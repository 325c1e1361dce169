// Package signature decides whether a key has signed a container image. It is pure:
// keys and bundles come in as bytes, and everything in a bundle is untrusted.
//
// A signature is what `cosign sign --key … --new-bundle-format` pushes beside an
// image: a sigstore bundle, in it a DSSE envelope, in that an in-toto statement about
// the image's digest. Certificates, logs and timestamps in a bundle count for nothing,
// only the key does.
package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const (
	// BundleType is the media type of the bundles that are read.
	BundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	// PredicateType tells a signature from an attestation: without it an SBOM that the
	// same key attested would count as a signature.
	PredicateType = "https://sigstore.dev/cosign/sign/v1"
	// MaxBundle bounds a bundle, in bytes. One by a key has less than 2 KiB.
	MaxBundle = 1 << 20
)

const (
	payloadType = "application/vnd.in-toto+json"
	// The bounds of an RSA modulus, in bits: below it proves little, above it takes long.
	minRSA, maxRSA = 2048, 8192
)

// Key is a public key whose signatures count; the zero Key has signed nothing. It is
// safe for concurrent use.
type Key struct{ public crypto.PublicKey }

// ParseKey reads a PEM text with one public key: ECDSA P-256, Ed25519 or RSA.
func ParseKey(text []byte) (Key, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" || len(bytes.TrimSpace(rest)) > 0 {
		return Key{}, errors.New("want one PEM block of type PUBLIC KEY, as `cosign public-key` prints it")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Key{}, fmt.Errorf("read the public key: %w", err)
	}
	switch k := public.(type) {
	case ed25519.PublicKey:
		return Key{k}, nil
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return Key{k}, nil
		}
		return Key{}, fmt.Errorf("an ECDSA key of the curve %s: want P-256", k.Params().Name)
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSA || bits > maxRSA {
			return Key{}, fmt.Errorf("an RSA key of %d bits: want %d to %d", bits, minRSA, maxRSA)
		}
		return Key{k}, nil
	default:
		return Key{}, fmt.Errorf("a key of type %T: want ECDSA P-256, Ed25519 or RSA", public)
	}
}

// bundle is as much as counts of a sigstore bundle.
type bundle struct {
	MediaType string `json:"mediaType"`
	Envelope  struct {
		Payload     []byte `json:"payload"`
		PayloadType string `json:"payloadType"`
		Signatures  []struct {
			Sig []byte `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

// statement is as much as counts of an in-toto statement.
type statement struct {
	Subject []struct {
		Digest map[string]string `json:"digest"`
	} `json:"subject"`
	PredicateType string `json:"predicateType"`
}

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Verify fails, saying why, unless text is a bundle in which k signed the image of this
// digest, given as sha256:… in lower case.
func (k Key) Verify(digest string, text []byte) error {
	if !digestPattern.MatchString(digest) {
		return fmt.Errorf("digest %.80q is not valid: want sha256: and 64 hexadecimal digits", digest)
	}
	if len(text) > MaxBundle {
		return fmt.Errorf("a bundle of %d bytes: want at most %d", len(text), MaxBundle)
	}
	var b bundle
	if err := json.Unmarshal(text, &b); err != nil {
		return fmt.Errorf("no signature bundle: %w", err)
	}
	e := b.Envelope
	switch {
	case b.MediaType != BundleType:
		return fmt.Errorf("a bundle of type %.80q: want %s", b.MediaType, BundleType)
	case e.PayloadType != payloadType:
		return fmt.Errorf("a bundle of a payload of type %.80q: want %s", e.PayloadType, payloadType)
	case len(e.Signatures) != 1:
		return fmt.Errorf("a bundle of %d signatures: want 1", len(e.Signatures))
	case !k.signed(encode(e.PayloadType, e.Payload), e.Signatures[0].Sig):
		return errors.New("signed with another key, or altered afterwards")
	}
	// From here on it is the key's owner that speaks.
	return states(e.Payload, digest)
}

// encode is DSSE's pre-authentication encoding, which binds the payload to its type.
func encode(kind string, payload []byte) []byte {
	return append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(kind), kind, len(payload)), payload...)
}

// signed reports whether sig is the key's signature of message.
func (k Key) signed(message, sig []byte) bool {
	sum := sha256.Sum256(message)
	switch public := k.public.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(public, sum[:], sig)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], sig) == nil
	case ed25519.PublicKey:
		// cosign hashes first (Ed25519ph), other signers don't; neither passes for the other.
		long := sha512.Sum512(message)
		return ed25519.Verify(public, message, sig) ||
			ed25519.VerifyWithOptions(public, long[:], sig, &ed25519.Options{Hash: crypto.SHA512}) == nil
	default:
		return false
	}
}

// states fails unless the payload says that the image of this digest is signed.
func states(payload []byte, digest string) error {
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil {
		return fmt.Errorf("no in-toto statement: %w", err)
	}
	if s.PredicateType != PredicateType {
		return fmt.Errorf("a statement of type %.80q, which is no signature: want %s", s.PredicateType, PredicateType)
	}
	var about []string
	for _, subject := range s.Subject {
		sum := "sha256:" + subject.Digest["sha256"]
		if sum == digest {
			return nil
		}
		about = append(about, sum)
	}
	return fmt.Errorf("a signature of another image, %.240s", strings.Join(about, ", "))
}
