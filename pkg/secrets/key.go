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

// KeySize is the length of an encryption key, in bytes: AES-256's.
const KeySize = 32

// The providers of encryption keys that every build has.
const (
	KeyFromEnv  = "env"
	KeyFromFile = "file"
)

// keyTimeout bounds one read of a key: a file may be on a disk that hangs, and a
// cloud may not answer.
const keyTimeout = 10 * time.Second

// keyFileLimit bounds what is read of a key file, so that a wrong path, such as a
// disk image's, costs no memory.
const keyFileLimit = 1 << 20

// Source reads what one provider of keys keeps under a name. Its error tells why
// it can't, never what it read; the name is the caller's to tell. A Source that
// does not mind ctx is left behind when it ends.
type Source func(ctx context.Context, name string) ([]byte, error)

// Sources are where keys can come from, by the provider's name in a config.
type Sources map[string]Source

// LocalSources are the process's environment and the host's files. getenv is
// os.Getenv but for tests.
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

// KeySource says where an encryption key is: a provider, and the key's name there,
// which is that of an environment variable, the path of a file, or what a cloud
// calls it.
type KeySource struct {
	Provider string // one of Sources, such as env or file
	Source   string
}

func (s KeySource) String() string { return s.Provider + " " + s.Source }

// Key is an encryption key. It never shows its bytes when formatted or logged,
// only where it came from.
type Key struct {
	bytes  [KeySize]byte
	source KeySource
}

// Format implements fmt.Formatter for every verb.
func (k Key) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "encryption key from "+k.source.String())
}

// LoadKey reads a key of exactly 32 bytes, within ten seconds. A file may end with
// one newline after them; nothing else is ever taken off. ErrKey names the source
// and the length found, never the value.
func LoadKey(ctx context.Context, s KeySource, sources Sources) (Key, error) {
	read, ok := sources[s.Provider]
	switch {
	case ok && s.Source == "":
		return Key{}, fmt.Errorf("%w: no source is given: want the name of what %s keeps", ErrKey, s.Provider)
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
		return Key{}, fmt.Errorf("%w: %s holds %d bytes, want exactly %d", ErrKey, s, len(value), KeySize)
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

// readKeyFile reads a regular file. Anything else might never answer, and each open
// that waits holds a thread for as long, one more at every attempt to boot; only that
// a disk hangs can't be told beforehand.
func readKeyFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // or a pipe waits for its writer here
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

// plainly leaves out of a file's error the path, which stands before it already.
func plainly(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
