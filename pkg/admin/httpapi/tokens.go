package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/audit"
)

// minToken is the length below which a token could be guessed.
const minToken = 16

// Tokens are bearer tokens in a file, one a line. They are read again when the file changes,
// and accepted only while it is valid. It is safe for concurrent use.
type Tokens struct {
	path string

	mu     sync.Mutex
	stamp  stamp
	hashes [][sha256.Size]byte
	err    error
}

// stamp tells versions of a file apart.
type stamp struct {
	size     int64
	modified time.Time
	mode     os.FileMode
}

// OpenTokens reads a file of tokens.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reload()
	return t, t.err
}

// has reports whether a token is in the file. Its time does not depend on the token.
func (t *Tokens) has(token string, log *slog.Logger) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reload() && t.err != nil {
		log.Error("no token is accepted until the file is valid", slog.String("file", t.path), slog.Any("error", t.err))
	}
	hash, found := sha256.Sum256([]byte(token)), 0
	for _, known := range t.hashes {
		found |= subtle.ConstantTimeCompare(hash[:], known[:])
	}
	return found == 1
}

// reload reads the file if it has changed, and reports whether it did. The caller holds t.mu.
func (t *Tokens) reload() bool {
	info, err := os.Stat(t.path)
	var now stamp
	if err == nil {
		now = stamp{info.Size(), info.ModTime(), info.Mode()}
	}
	if now == t.stamp && (err == nil || t.err != nil) {
		return false
	}
	t.stamp = now
	t.hashes, t.err = readTokens(t.path)
	return true
}

func readTokens(path string) ([][sha256.Size]byte, error) {
	text, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	var hashes [][sha256.Size]byte
	for line := range strings.Lines(string(text)) {
		token := strings.TrimSpace(line)
		switch {
		case token == "":
		case len(token) < minToken:
			return nil, fmt.Errorf("%s: a token has %d characters: want at least %d, such as those of `openssl rand -hex 32`",
				path, len(token), minToken)
		default:
			hashes = append(hashes, sha256.Sum256([]byte(token)))
		}
	}
	if len(hashes) == 0 {
		return nil, fmt.Errorf("%s: it has no token: want one on each line", path)
	}
	return hashes, nil
}

// maxTokens bounds a file of tokens, in bytes.
const maxTokens = 1 << 16

// readPrivate reads a file that only its owner can.
func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: want a regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s: its mode is %04o, so others can read or change it: want 0600 (chmod 600)", path, info.Mode().Perm())
	case info.Size() > maxTokens:
		return nil, fmt.Errorf("%s: it has %d bytes: want at most %d", path, info.Size(), maxTokens)
	}
	return os.ReadFile(path)
}

// Access says who may do what.
type Access struct {
	Full     *Tokens // may do everything; nil with ReadOnly: no request needs a token
	ReadOnly *Tokens // may not change anything
}

var errNoToken = errors.New("a token is required: add the header Authorization: Bearer TOKEN")

// Callers, as the audit has them: tokens have no names.
const (
	fullToken     = "full token"
	readOnlyToken = "read-only token"
)

// of returns whose request one with this Authorization is, and whether it may make changes, or an
// error. A token in both files may not.
func (a Access) of(authorization string, log *slog.Logger) (caller string, changes bool, err error) {
	if a.Full == nil && a.ReadOnly == nil {
		return audit.None, true, nil
	}
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return audit.None, false, errNoToken
	}
	full, readOnly := a.Full.has(token, log), a.ReadOnly.has(token, log)
	switch {
	case readOnly:
		return readOnlyToken, false, nil
	case full:
		return fullToken, true, nil
	default:
		return audit.None, false, errors.New("the token is not valid")
	}
}
