package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nstance/nstance/pkg/pki"
)

// keyMode is not for a configuration to loosen.
const keyMode = 0o600

const lockName = "identity.lock"

// Folder is a Store of one file for each part. A certificate can't be replaced
// together with its key, so there is one moment of a promotion at which
// identity.crt is for identity.key.next; Load and Settle know that.
type Folder struct {
	Files
	Shared bool // several processes use it; without it, Lock locks nothing
}

var _ Store = Folder{}

// Load implements Store. What is no pair is read again: a promotion may have ended
// meanwhile, and another one begun.
func (f Folder) Load(context.Context) (Contents, error) {
	for reads := 1; ; reads++ {
		c, err := f.load()
		switch {
		case err != nil || c.Certificate == nil || fit(c.Certificate, c.Key) || reads == maxReads:
			return c, err
		case fit(c.Certificate, c.Next): // a promotion is between the two, or was when its process ended
			c.Key, c.Next = c.Next, nil
			return c, nil
		}
	}
}

const maxReads = 5

// load reads the CAs last: a promotion writes them first, so they fit the
// certificate that was read.
func (f Folder) load() (c Contents, err error) {
	for _, part := range []struct {
		name, what string
		to         *[]byte
	}{
		{CertificateName, "certificate", &c.Certificate}, {KeyName, "private key", &c.Key},
		{NextName, "next private key", &c.Next}, {CAsName, "CA certificates", &c.CAs},
	} {
		if *part.to, err = f.Read(part.name); err != nil {
			return Contents{}, fmt.Errorf("read the %s: %w", part.what, err)
		}
	}
	return c, nil
}

func fit(cert, key []byte) bool {
	_, err := pki.ParseKeypair(cert, key)
	return err == nil
}

// Stage implements Store.
func (f Folder) Stage(_ context.Context, key []byte) error {
	if err := f.Settle(); err != nil { // or the key of the certificate would be overwritten
		return err
	}
	name := NextName
	if _, err := os.Lstat(f.Path(KeyName)); errors.Is(err, fs.ErrNotExist) {
		name = KeyName
	}
	return f.Write(name, key, keyMode)
}

// Promote implements Store.
func (f Folder) Promote(_ context.Context, c Contents) error {
	if err := f.Write(CAsName, c.CAs, f.Mode); err != nil {
		return err
	}
	if err := f.Write(CertificateName, c.Certificate, f.Mode); err != nil {
		return err
	}
	return f.Settle()
}

// Settle ends a promotion that was cut short after its certificate was stored, so
// that whatever else reads the folder finds a pair.
func (f Folder) Settle() error {
	c, err := f.load()
	if err != nil || c.Certificate == nil || !fit(c.Certificate, c.Next) {
		return err
	}
	// The certificate's name first: a disk that kept the key's alone would be left
	// with the certificate from before, whose key is gone.
	if err := f.sync(); err != nil {
		return err
	}
	if err := f.Rename(NextName, KeyName); err != nil {
		return fmt.Errorf("store the certificate's key: %w", err)
	}
	return nil
}

// Lock implements Store. Whoever holds it finds a pair on the disk: what an attempt
// before has left half done is ended first.
func (f Folder) Lock(context.Context) (unlock func(), held bool, err error) {
	if !f.Shared {
		return func() {}, true, f.Settle()
	}
	lock, err := os.OpenFile(f.Path(lockName), os.O_CREATE|os.O_RDWR, keyMode)
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		if err := f.Settle(); err != nil {
			lock.Close()
			return nil, false, err
		}
		return func() { lock.Close() }, true, nil
	}
	lock.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", lock.Name(), err)
}

// CheckVacant fails when the folder holds an identity or a part of one, which is
// never overwritten, because its key can't be had again. A ca.crt may be there if
// it is this one.
func (f Folder) CheckVacant(cas []byte) error {
	for _, name := range []string{KeyName, CertificateName} {
		if _, err := os.Lstat(f.Path(name)); err == nil {
			return fmt.Errorf("%s is there already: an identity is never overwritten, choose another folder", f.Path(name))
		}
	}
	if there, err := os.ReadFile(f.Path(CAsName)); err == nil && !bytes.Equal(there, cas) {
		return fmt.Errorf("%s is of another cluster: choose another folder", f.Path(CAsName))
	}
	return nil
}

// Create makes the folder and writes an identity to it, durably, or nothing of it.
func (f Folder) Create(c Contents) error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return fmt.Errorf("make the identity folder: %w", err)
	}
	if err := f.CheckVacant(c.CAs); err != nil {
		return err
	}
	parts := []struct {
		name string
		text []byte
		mode fs.FileMode
	}{{KeyName, c.Key, keyMode}, {CertificateName, c.Certificate, f.Mode}, {CAsName, c.CAs, f.Mode}}
	for n, part := range parts {
		err := writeNew(f.Path(part.name), part.text, part.mode)
		if err == nil || part.name == CAsName && errors.Is(err, fs.ErrExist) {
			continue
		}
		for _, made := range parts[:n] {
			os.Remove(f.Path(made.name))
		}
		return fmt.Errorf("write identity: %w", err)
	}
	return f.sync()
}

// writeNew writes a file that must not be there yet, whole or not at all.
func writeNew(path string, text []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		os.Remove(path)
	}
	return err
}
