package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// KeySize is the length of an encryption key in bytes (AES-256).
const KeySize = 32

// minDifferent is the minimum number of different bytes in a key. A random one has fewer only
// if it uses few symbols: for 32 of base64's 64 symbols, once in 10^13 keys. It catches most
// words, repetitions and sequences.
const minDifferent = 12

// makeKey is the command that generates a key: 32 characters of base64.
const makeKey = "openssl rand -base64 24"

// The built-in providers of encryption keys.
const (
	KeyFromEnv  = "env"
	KeyFromFile = "file"
)

// keyTimeout bounds one read of a key: a disk may hang, and a cloud may not answer.
const keyTimeout = 10 * time.Second

// keyFileLimit bounds the read of a key file, so that a wrong path, such as a disk image,
// costs no memory.
const keyFileLimit = 1 << 20

// Source reads the value of a name from one provider of keys. Its error never contains the
// value, and the caller adds the name. A Source that ignores ctx is abandoned when ctx ends.
type Source func(ctx context.Context, name string) ([]byte, error)

// Sources are the sources of keys, by provider name.
type Sources map[string]Source

// LocalSources returns the environment and the local files as sources. getenv is usually
// os.Getenv.
func LocalSources(getenv func(string) string) Sources {
	return Sources{
		KeyFromEnv: func(_ context.Context, name string) ([]byte, error) {
			value := getenv(name)
			if value == "" {
				return nil, errors.New("the environment variable is not set, want 32 bytes")
			}
			return []byte(value), nil
		},
		KeyFromFile: func(_ context.Context, path string) ([]byte, error) { return readKeyFile(path) },
	}
}

func (s Sources) have() string { return strings.Join(slices.Sorted(maps.Keys(s)), " or ") }

// KeySource is the location of an encryption key: a provider, and the key's name there, which
// is an environment variable, a file path, or a cloud's name.
type KeySource struct {
	Provider string // a key of Sources, such as env or file
	Source   string
}

func (s KeySource) String() string { return s.Provider + " " + s.Source }

// Key is an encryption key. It is formatted and logged as its source, without its bytes.
type Key struct {
	bytes  [KeySize]byte
	source KeySource
}

// Format implements fmt.Formatter for every verb.
func (k Key) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "encryption key from "+k.source.String())
}

// LoadKey reads a key of exactly 32 bytes, at least 12 of them different, within ten seconds.
// A file may end with one newline; nothing else is trimmed. ErrKey names the source and the
// problem, never the value.
func LoadKey(ctx context.Context, s KeySource, sources Sources) (Key, error) {
	key, err := loadAnyKey(ctx, s, sources)
	if err != nil {
		return Key{}, err
	}
	different := map[byte]bool{}
	for _, b := range key.bytes {
		different[b] = true
	}
	if n := len(different); n < minDifferent {
		return Key{}, fmt.Errorf("%w: %s is not random enough: it has %d different bytes, want at least %d: generate one with %s",
			ErrKey, s, n, minDifferent, makeKey)
	}
	return key, nil
}

// loadAnyKey also accepts a key that is not random enough, for opening only: otherwise secrets
// sealed with such a key could not be sealed again.
func loadAnyKey(ctx context.Context, s KeySource, sources Sources) (Key, error) {
	read, ok := sources[s.Provider]
	switch {
	case ok && s.Source == "":
		return Key{}, fmt.Errorf("%w: no source given: want the key's name for provider %s", ErrKey, s.Provider)
	case ok:
	case s.Provider == ProviderSecretsManager, s.Provider == ProviderParameterStore:
		return Key{}, fmt.Errorf("encryption key provider %q is %w: want %s", s.Provider, ErrUnsupported, sources.have())
	default:
		return Key{}, fmt.Errorf("%w: unknown provider %.80q: want %s", ErrKey, s.Provider, sources.have())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, keyTimeout, fmt.Errorf("no answer within %s", keyTimeout))
	defer cancel()
	value, err := read.within(ctx, s.Source)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %s: %w", ErrKey, s, err)
	}
	if s.Provider == KeyFromFile && len(value) == KeySize+1 && value[KeySize] == '\n' {
		value = value[:KeySize]
	}
	if len(value) != KeySize {
		return Key{}, fmt.Errorf("%w: %s holds %d bytes, want exactly %d: generate a key with %s", ErrKey, s, len(value), KeySize, makeKey)
	}
	return Key{bytes: [KeySize]byte(value), source: s}, nil
}

// within reads, and returns when ctx ends even if the source does not.
func (read Source) within(ctx context.Context, name string) ([]byte, error) {
	type answer struct {
		value []byte
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		value, err := read(ctx, name)
		answered <- answer{value, err}
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readKeyFile reads a regular file. Anything else may block for ever, and each blocked open
// holds a thread, one more at every boot attempt. A hanging disk can't be detected in advance.
func readKeyFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // otherwise opening a pipe waits for its writer
	if err != nil {
		return nil, plainly(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, plainly(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("this is a directory, a pipe or a device, want a regular file")
	}
	value, err := io.ReadAll(io.LimitReader(f, keyFileLimit))
	if err != nil {
		return nil, plainly(err)
	}
	if len(value) == keyFileLimit {
		return nil, errors.New("the file is longer than 1 MiB, want exactly 32 bytes")
	}
	return value, nil
}

// plainly removes the path from a file error, because the message already has it.
func plainly(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
