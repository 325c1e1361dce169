// Package nar hashes files and folders the way Nix names their contents: the SHA-256 of a
// Nix archive (NAR). The format is that of Eelco Dolstra, "The Purely Functional Software
// Deployment Model", 2006, figure 5.2.
package nar

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Hash returns the hash of what is at a path in the form of a vendorHash: sha256- and base64.
// Names, contents, symbolic links and whether a file can be executed count, and nothing else.
func Hash(path string) (string, error) {
	sum := sha256.New()
	if err := Write(sum, path); err != nil {
		return "", err
	}
	return "sha256-" + base64.StdEncoding.EncodeToString(sum.Sum(nil)), nil
}

// Write writes what is at a path as an archive. What is neither a file, a folder nor a
// symbolic link is an error.
func Write(w io.Writer, path string) error {
	a := &archive{w: w}
	a.strings("nix-archive-1")
	a.node(path)
	return a.err
}

// archive keeps the first error, after which nothing is written any more.
type archive struct {
	w   io.Writer
	err error
}

func (a *archive) node(path string) {
	if a.err != nil {
		return
	}
	info, err := os.Lstat(path)
	if err != nil {
		a.err = err
		return
	}
	a.strings("(", "type")
	switch info.Mode().Type() {
	case 0:
		a.file(path, info)
	case fs.ModeSymlink:
		target, err := os.Readlink(path)
		a.fail(err)
		a.strings("symlink", "target", target)
	case fs.ModeDir:
		a.folder(path)
	default:
		a.fail(fmt.Errorf("%s: want a file, a folder or a symbolic link, not %s", path, info.Mode().Type()))
	}
	a.strings(")")
}

func (a *archive) file(path string, info fs.FileInfo) {
	a.strings("regular")
	if info.Mode()&0o100 != 0 {
		a.strings("executable", "")
	}
	a.strings("contents")
	a.length(info.Size())
	file, err := os.Open(path)
	if err != nil {
		a.fail(err)
		return
	}
	defer file.Close()
	if a.err != nil {
		return
	}
	n, err := io.Copy(a.w, file)
	a.fail(err)
	if n != info.Size() {
		a.fail(fmt.Errorf("%s: has %d bytes, and had %d a moment ago", path, n, info.Size()))
	}
	a.pad(n)
}

func (a *archive) folder(path string) {
	a.strings("directory")
	entries, err := os.ReadDir(path) // in the order of their names, byte by byte
	a.fail(err)
	for _, entry := range entries {
		a.strings("entry", "(", "name", entry.Name(), "node")
		a.node(filepath.Join(path, entry.Name()))
		a.strings(")")
	}
}

func (a *archive) strings(all ...string) {
	for _, s := range all {
		a.length(int64(len(s)))
		a.bytes([]byte(s))
		a.pad(int64(len(s)))
	}
}

// length is a number of bytes: 64 bits, the lowest first.
func (a *archive) length(n int64) { a.bytes(binary.LittleEndian.AppendUint64(nil, uint64(n))) }

// pad fills up to a multiple of 8 bytes.
func (a *archive) pad(n int64) { a.bytes(make([]byte, (8-n%8)%8)) }

func (a *archive) bytes(b []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
	}
}

func (a *archive) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}
