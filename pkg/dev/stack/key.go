package stack

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// keyFile is the file with the secret key of the stack's object storage. It is no constant, which
// other users of the machine and web pages would know, because a writer of the bucket can make the
// servers run programs.
func keyFile(temp string) string { return filepath.Join(temp, "s3.key") }

// withKey returns cfg with the key of its folder, and creates one if there is none. If several are
// created at once, the first one wins.
func (c Config) withKey() (Config, error) {
	file := keyFile(c.Temp)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(file); err != nil {
			return Config{}, fmt.Errorf("make the object storage's key: %w", err)
		}
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return Config{}, fmt.Errorf("read the object storage's key: %w", err)
	}
	if c.storeKey = strings.TrimSpace(string(text)); c.storeKey == "" {
		return Config{}, fmt.Errorf("read the object storage's key: %s is empty: remove it, and a new one is made", file)
	}
	return c, nil
}

// makeKey creates the key file atomically.
func makeKey(file string) error {
	temp, err := os.CreateTemp(filepath.Dir(file), ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(rand.Text() + "\n")
	if err := errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := os.Link(temp.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
