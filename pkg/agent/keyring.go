package agent

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/identity"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// keyring is a directory of keys: {name}.key is a private key (PKCS #8, PEM), and
// {name}.pub its public key (PKIX, PEM). Private keys never leave it.
type keyring struct {
	dir     identity.Files
	claim   func() error // makes this instance the owner of the directory
	claimed bool
	entropy io.Reader
	now     func() time.Time
	logger  *slog.Logger
}

var _ Keys = (*keyring)(nil)

// maxKeyFiles limits how many files a server can cause to be created over time.
const maxKeyFiles = 512

// Public implements Keys.
func (k *keyring) Public(requests []*nstancev1.KeyRequest) (map[string]string, error) {
	// Services that run as another user read their keys through the group, if the mode of the
	// keys allows it.
	if err := os.MkdirAll(k.dir.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("create the keys directory: %w", err)
	}
	if !k.claimed {
		if err := k.claim(); err != nil {
			return nil, err
		}
		k.claimed = true
	}
	public := make(map[string]string, len(requests))
	var problems []error
	for _, request := range requests {
		text, err := k.one(request.GetName(), request.GetAlgorithm())
		if err != nil {
			problems = append(problems, fmt.Errorf("key %s: %w", request.GetName(), err))
			continue
		}
		public[request.GetName()] = string(text)
	}
	return public, errors.Join(problems...)
}

func (k *keyring) one(name string, algorithm nstancev1.KeyAlgorithm) (public []byte, err error) {
	key, err := k.load(name, algorithm)
	if err == nil && key == nil {
		key, err = k.make(name, algorithm)
	}
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	public = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	there, err := k.dir.Read(name + ".pub")
	if err == nil && !bytes.Equal(there, public) {
		err = k.dir.Write(name+".pub", public, k.dir.Mode)
	}
	return public, err
}

// load returns the existing key, or nil if there is none to use. An unreadable key, or one of
// another algorithm, is set aside, since it would keep the machine without a certificate for
// ever.
func (k *keyring) load(name string, algorithm nstancev1.KeyAlgorithm) (crypto.Signer, error) {
	data, err := k.dir.Read(name + ".key")
	if err != nil || data == nil {
		return nil, err
	}
	key, err := parseKey(data)
	if err == nil && algorithmOf(key) != algorithm {
		err = fmt.Errorf("algorithm %s: want %s", algorithmOf(key), algorithm)
	}
	if err == nil {
		return key, nil
	}
	if full := k.room(); full != nil {
		return nil, errors.Join(err, full)
	}
	aside := fmt.Sprintf("%s.key.bad-%s", name, k.now().UTC().Format(asideTime))
	k.logger.LogAttrs(context.Background(), slog.LevelError, "unusable private key set aside, generating another",
		slog.String("key", k.dir.Path(name+".key")), slog.String("kept_as", aside), slog.Any("error", err))
	return nil, k.dir.Rename(name+".key", aside)
}

// SetAside implements Keys. The public key is replaced when the next private key is made.
func (k *keyring) SetAside(name string) error {
	if err := k.room(); err != nil {
		return err
	}
	return setInUseAside(context.Background(), k.dir, name+".key", k.now(), k.logger)
}

func (k *keyring) make(name string, algorithm nstancev1.KeyAlgorithm) (crypto.Signer, error) {
	if err := k.room(); err != nil {
		return nil, err
	}
	key, err := newKey(algorithm, k.entropy)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, k.dir.Write(name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), k.dir.Mode)
}

// room returns an error if the directory holds more files than a machine can need.
func (k *keyring) room() error {
	entries, err := os.ReadDir(k.dir.Dir)
	if err == nil && len(entries) >= maxKeyFiles {
		err = fmt.Errorf("%s has %d files: no more keys are generated until some are removed", k.dir.Dir, len(entries))
	}
	return err
}

func makesKeys(algorithm nstancev1.KeyAlgorithm) bool {
	return algorithm == nstancev1.KeyAlgorithm_KEY_ALGORITHM_ED25519 || algorithm == nstancev1.KeyAlgorithm_KEY_ALGORITHM_ECDSA_P256
}

func newKey(algorithm nstancev1.KeyAlgorithm, entropy io.Reader) (crypto.Signer, error) {
	if algorithm == nstancev1.KeyAlgorithm_KEY_ALGORITHM_ECDSA_P256 {
		return ecdsa.GenerateKey(elliptic.P256(), entropy)
	}
	_, key, err := ed25519.GenerateKey(entropy)
	return key, err
}

func algorithmOf(key crypto.Signer) nstancev1.KeyAlgorithm {
	switch key := key.(type) {
	case ed25519.PrivateKey:
		return nstancev1.KeyAlgorithm_KEY_ALGORITHM_ED25519
	case *ecdsa.PrivateKey:
		if key.Curve == elliptic.P256() {
			return nstancev1.KeyAlgorithm_KEY_ALGORITHM_ECDSA_P256
		}
	}
	return nstancev1.KeyAlgorithm_KEY_ALGORITHM_UNSPECIFIED
}

var errNoKey = errors.New("not a private key: want PKCS #8 or SEC 1 in PEM")

// parseKey also reads SEC 1, the default format of openssl, for keys created by hand.
func parseKey(data []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "PRIVATE KEY":
			if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				if signer, ok := key.(crypto.Signer); ok {
					return signer, nil
				}
			}
			return nil, errNoKey
		case "EC PRIVATE KEY":
			if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
				return key, nil
			}
			return nil, errNoKey
		}
	}
	return nil, errNoKey
}

// checkSpelling refuses two keys that would share a file on some file systems.
func checkSpelling(name string, others []*nstancev1.KeyRequest) error {
	for _, other := range others {
		if strings.EqualFold(name, other.GetName()) {
			return fmt.Errorf("keys %s and %s: names must differ by more than case", other.GetName(), name)
		}
	}
	return nil
}
