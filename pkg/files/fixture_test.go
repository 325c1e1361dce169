package files_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/files"
)

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func open(path string, step func(op, name string) error) *files.Dir {
	return files.NewDir(files.DirConfig{Path: path, Mode: 0o640, Now: time.Now, Step: step})
}

// set returns a whole set of files, all of them sent.
func set(hash string, contents map[string]string) files.Set {
	s := files.Set{ConfigHash: hash, Names: slices.Sorted(maps.Keys(contents)), Sent: map[string][]byte{}}
	for name, content := range contents {
		s.Sent[name] = []byte(content)
	}
	return s
}

// hashFile returns the content of config.hash for a set of files: its second line is what
// `sha256sum FILE… | sha256sum` prints.
func hashFile(hash string, contents map[string]string) string {
	var lines string
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		lines += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(contents[name])), name)
	}
	return fmt.Sprintf("%s\n%x\n", hash, sha256.Sum256([]byte(lines)))
}

// tree returns the contents of a directory without the folder .nstance: contents of files,
// targets of links.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case name == ".nstance":
			return fs.SkipDir
		case name == ".":
		case e.IsDir():
			found[name] = "directory"
		case e.Type() == fs.ModeSymlink:
			found[name] = "-> " + must(os.Readlink(path))(t)
		case e.Type().IsRegular():
			found[name] = string(must(os.ReadFile(path))(t))
		default:
			found[name] = e.Type().String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func put(t *testing.T, dir string, contents map[string]string) {
	t.Helper()
	for name, content := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// certificate returns a certificate with this expiry, and its key.
func certificate(t testing.TB, end time.Time) (certificate, private, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubelet"}, NotBefore: end.Add(-time.Hour), NotAfter: end,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pkix, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return text("CERTIFICATE", cert), text("PRIVATE KEY", pkcs8), text("PUBLIC KEY", pkix)
}
