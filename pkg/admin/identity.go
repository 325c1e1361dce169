package admin

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nstance/nstance/pkg/pki"
)

// The files of an identity folder.
const (
	caFile   = "ca.crt"
	certFile = "identity.crt"
	keyFile  = "identity.key"
)

// Identity is a client certificate with its key, and the CA that servers are
// checked against.
type Identity struct {
	dir      string
	endpoint pki.Endpoint
}

// LoadIdentity reads an identity folder, which must hold an operator's identity
// that is still good; ErrNoIdentity when there is none.
func LoadIdentity(dir string, now func() time.Time) (*Identity, error) {
	id, err := loadIdentity(dir, now)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w in %s: %w", ErrNoIdentity, dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("load identity: %w", err)
	}
	return id, nil
}

func loadIdentity(dir string, now func() time.Time) (*Identity, error) {
	var files [3][]byte
	for i, name := range []string{caFile, certFile, keyFile} {
		body, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		files[i] = body
	}
	bundle, err := pki.ParseBundle(files[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", caFile, err)
	}
	pair, err := pki.ParseKeypair(files[1], files[2])
	if errors.Is(err, pki.ErrMismatch) {
		pair, err = settlePair(dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	var cluster string
	if uris := pair.Certificate().URIs; len(uris) == 1 {
		cluster = uris[0].Host
	}
	caller, err := pki.ParseCaller(pair.Certificate(), cluster)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", certFile, err)
	case caller.Role != pki.RoleOperator:
		return nil, fmt.Errorf("%s: it is of role %s: want an operator's", certFile, caller.Role)
	case now().After(caller.NotAfter):
		return nil, fmt.Errorf("%s: %w at %s", certFile, pki.ErrExpired, caller.NotAfter.UTC().Format(time.RFC3339))
	}
	return &Identity{dir, pki.Endpoint{Cluster: cluster, Source: pki.NewSource(bundle, pair), Now: now}}, nil
}

// settlePair finds the pair in a folder whose certificate and key don't fit: a
// renewal is between the two, or was when its process ended.
func settlePair(dir string, mismatch error) (*pki.Keypair, error) {
	for _, name := range []string{nextKeyFile, keyFile} { // the second one for who was overtaken
		cert, err := os.ReadFile(filepath.Join(dir, certFile))
		if err != nil {
			return nil, err
		}
		key, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		pair, err := pki.ParseKeypair(cert, key)
		if err != nil {
			continue
		}
		return pair, nil
	}
	return nil, mismatch
}

// TLS returns the TLS config for dialing a server of a shard at host.
func (i *Identity) TLS(shard, host string) *tls.Config { return i.endpoint.Client(host, shard) }

// checkNoIdentity fails when a folder holds an identity, or a part of one: it is
// never overwritten, because its key can't be had again. A ca.crt may be there
// if it is this one.
func checkNoIdentity(dir string, ca []byte) error {
	for _, name := range []string{keyFile, certFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s is there already: an identity is never overwritten, choose another folder", filepath.Join(dir, name))
		}
	}
	if body, err := os.ReadFile(filepath.Join(dir, caFile)); err == nil && !bytes.Equal(body, ca) {
		return fmt.Errorf("%s is of another cluster: choose another folder", filepath.Join(dir, caFile))
	}
	return nil
}

// saveIdentity writes an identity folder, or nothing of it.
func saveIdentity(dir string, ca, cert, key []byte) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the identity folder: %w", err)
	}
	if err := checkNoIdentity(dir, ca); err != nil {
		return err
	}
	var made []string
	defer func() {
		for _, path := range made {
			if err != nil {
				os.Remove(path)
			}
		}
	}()
	for _, f := range []struct {
		name string
		body []byte
		mode os.FileMode
	}{{keyFile, key, 0o600}, {certFile, cert, 0o644}, {caFile, ca, 0o644}} {
		path := filepath.Join(dir, f.name)
		if err := writeNew(path, f.body, f.mode); err != nil && (f.name != caFile || !errors.Is(err, fs.ErrExist)) {
			return fmt.Errorf("write identity: %w", err)
		} else if err == nil {
			made = append(made, path)
		}
	}
	return nil
}

// writeNew writes a file that must not be there yet, whole or not at all.
func writeNew(path string, body []byte, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(body)
	if err = errors.Join(err, file.Close()); err != nil {
		os.Remove(path)
	}
	return err
}
