// Package signature verifies that a key has signed a container image. It is pure: keys and
// bundles are passed in as bytes, and everything in a bundle is untrusted.
//
// A signature is what `cosign sign --key … --new-bundle-format` attaches to an image: a
// sigstore bundle with a DSSE envelope, which contains an in-toto statement about the image's
// digest. Certificates, logs and timestamps in a bundle are ignored; only the key counts.
//
// A signature covers a digest. It covers the image's repository only if the signer included it.
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
	// PredicateType distinguishes a signature from an attestation: otherwise an SBOM attested
	// by the same key would count as a signature.
	PredicateType = "https://sigstore.dev/cosign/sign/v1"
	// MaxBundle bounds a bundle in bytes. A key-signed one has less than 2 KiB.
	MaxBundle = 1 << 20
)

const (
	payloadType = "application/vnd.in-toto+json"
	// Bounds of an RSA modulus in bits: smaller ones are weak, larger ones slow.
	minRSA, maxRSA = 2048, 8192
)

// Key is a trusted public key; the zero Key has signed nothing. It is safe for concurrent use.
type Key struct{ public crypto.PublicKey }

// ParseKey parses PEM text with one public key: ECDSA P-256, Ed25519 or RSA.
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

// bundle has the relevant fields of a sigstore bundle.
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

// statement has the relevant fields of an in-toto statement.
type statement struct {
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     struct {
		// Critical is the content of the older signature format, which some signers still add.
		Critical struct {
			Identity struct {
				Reference string `json:"docker-reference"`
			} `json:"identity"`
		} `json:"critical"`
	} `json:"predicate"`
}

// subject is an image that a statement is about, with its name if it has one.
type subject struct {
	Name   string            `json:"name"`
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest"`
}

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Verify returns an error unless text is a bundle in which k signed the image with this digest,
// given as sha256:… in lower case. names reports whether a repository or reference in the
// statement is the image's own; it is not called if the statement has none.
func (k Key) Verify(digest string, text []byte, names func(said string) bool) error {
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
	// From here on the content is authenticated by the key.
	return attests(e.Payload, digest, names)
}

// encode returns DSSE's pre-authentication encoding, which binds the payload to its type.
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
		// cosign uses Ed25519ph, other signers plain Ed25519; neither verifies as the other.
		long := sha512.Sum512(message)
		return ed25519.Verify(public, message, sig) ||
			ed25519.VerifyWithOptions(public, long[:], sig, &ed25519.Options{Hash: crypto.SHA512}) == nil
	default:
		return false
	}
}

// attests returns an error unless the payload states that the image with this digest, and with
// this name if it has one, is signed.
func attests(payload []byte, digest string, names func(string) bool) error {
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil {
		return fmt.Errorf("not an in-toto statement: %w", err)
	}
	if s.PredicateType != PredicateType {
		return fmt.Errorf("a statement of type %.80q, which is not a signature: want %s", s.PredicateType, PredicateType)
	}
	var about, called []string
	for _, subject := range s.Subject {
		sum := "sha256:" + subject.Digest["sha256"]
		if sum != digest {
			about = append(about, sum)
			continue
		}
		other := otherNames([]string{subject.Name, subject.URI, s.Predicate.Critical.Identity.Reference}, names)
		if len(other) == 0 {
			return nil
		}
		called = append(called, other...)
	}
	if len(called) > 0 {
		return fmt.Errorf("a signature of this digest in another repository, %.240q", strings.Join(called, ", "))
	}
	return fmt.Errorf("a signature of another image, %.240s", strings.Join(about, ", "))
}

// otherNames returns the names in said that are not the image's.
func otherNames(said []string, names func(string) bool) (other []string) {
	for _, name := range said {
		if name != "" && !names(name) {
			other = append(other, name)
		}
	}
	return other
}
