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

// keyMode is fixed, so that no configuration can loosen it.
const keyMode = 0o600

const lockName = "identity.lock"

// Folder is a Store with one file per part. A certificate can't be replaced atomically with
// its key, so during a promotion identity.crt briefly belongs to identity.key.next; Load and
// FinishPromotion handle that.
type Folder struct {
	Files
	Shared bool // several processes use it; otherwise Lock does nothing
}

var _ Store = Folder{}

// Load implements Store. If certificate and key do not match it reads again: a promotion may
// have ended meanwhile, and another one begun.
func (f Folder) Load(context.Context) (Contents, error) {
	for reads := 1; ; reads++ {
		c, err := f.load()
		switch {
		case err != nil || c.Certificate == nil || fit(c.Certificate, c.Key) || reads == maxReads:
			return c, err
		case fit(c.Certificate, c.Next): // a promotion is in progress, or was interrupted
			c.Key, c.Next = c.Next, nil
			return c, nil
		}
	}
}

const maxReads = 5

// load reads the CAs last: a promotion writes them first, so they are valid for the
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
	if err := f.FinishPromotion(); err != nil { // otherwise the certificate's key could be overwritten
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
	return f.FinishPromotion()
}

// FinishPromotion completes a promotion that was interrupted after storing the certificate, so
// that other readers of the folder find a matching pair.
func (f Folder) FinishPromotion() error {
	c, err := f.load()
	if err != nil || c.Certificate == nil || !fit(c.Certificate, c.Next) {
		return err
	}
	// Sync the certificate's name first: if only the key's rename survived, the previous
	// certificate would be left without its key.
	if err := f.sync(); err != nil {
		return err
	}
	if err := f.Rename(NextName, KeyName); err != nil {
		return fmt.Errorf("store the certificate's key: %w", err)
	}
	return nil
}

// Lock implements Store. It first completes an interrupted promotion, so that its holder finds
// a matching pair.
func (f Folder) Lock(context.Context) (unlock func(), held bool, err error) {
	if !f.Shared {
		return func() {}, true, f.FinishPromotion()
	}
	lock, err := os.OpenFile(f.Path(lockName), os.O_CREATE|os.O_RDWR, keyMode)
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		if err := f.FinishPromotion(); err != nil {
			lock.Close()
			return nil, false, err
		}
		// A child between fork and exec has the file too, so closing it here releases nothing.
		return func() { _ = unix.Flock(int(lock.Fd()), unix.LOCK_UN); lock.Close() }, true, nil
	}
	lock.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", lock.Name(), err)
}

// CheckVacant returns an error if the folder holds an identity or a part of one, which is
// never overwritten, because its key can't be recovered. A ca.crt may exist if it equals cas.
func (f Folder) CheckVacant(cas []byte) error {
	for _, name := range []string{KeyName, CertificateName} {
		if _, err := os.Lstat(f.Path(name)); err == nil {
			return fmt.Errorf("%s already exists: an identity is never overwritten, choose another folder", f.Path(name))
		}
	}
	if there, err := os.ReadFile(f.Path(CAsName)); err == nil && !bytes.Equal(there, cas) {
		return fmt.Errorf("%s belongs to another cluster: choose another folder", f.Path(CAsName))
	}
	return nil
}

// Create creates the folder and writes an identity to it, durably, or nothing.
func (f Folder) Create(c Contents) error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return fmt.Errorf("create the identity folder: %w", err)
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

// writeNew atomically writes a file that must not exist.
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
