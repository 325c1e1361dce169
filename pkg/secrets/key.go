package secrets

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// KeySize is the length of an encryption key, in bytes: AES-256's.
const KeySize = 32

// The providers of encryption keys.
const (
	KeyFromEnv  = "env"
	KeyFromFile = "file"
)

// keyFileLimit bounds what is read of a key file, so that a wrong path, such as a
// device's, ends.
const keyFileLimit = 1 << 20

// KeySource says where an encryption key is: the name of an environment variable
// or the path of a file.
type KeySource struct {
	Provider string // env | file
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

// LoadKey reads a key of exactly 32 bytes. A file may end with one newline after
// them; nothing else is taken off, and an environment variable is taken as it
// is. ErrKey names the source and the length found, never the value.
func LoadKey(s KeySource, lookupEnv func(string) (string, bool)) (Key, error) {
	if s.Source == "" {
		return Key{}, fmt.Errorf("%w: no source is given: want the name of a variable (%s) or a path (%s)", ErrKey, KeyFromEnv, KeyFromFile)
	}
	switch s.Provider {
	case KeyFromEnv:
		value, ok := lookupEnv(s.Source)
		if !ok {
			return Key{}, fmt.Errorf("%w: environment variable %s is not set: want %d bytes", ErrKey, s.Source, KeySize)
		}
		return newKey(s, []byte(value))
	case KeyFromFile:
		value, err := readKeyFile(s.Source)
		if err != nil {
			return Key{}, fmt.Errorf("%w: %w", ErrKey, err)
		}
		if len(value) == KeySize+1 && value[KeySize] == '\n' {
			value = value[:KeySize]
		}
		return newKey(s, value)
	case providerAWSSecrets, providerAWSParameters:
		return Key{}, fmt.Errorf("encryption key provider %q is %w: want %s or %s", s.Provider, ErrUnsupported, KeyFromEnv, KeyFromFile)
	default:
		return Key{}, fmt.Errorf("%w: unknown provider %.80q: want %s or %s", ErrKey, s.Provider, KeyFromEnv, KeyFromFile)
	}
}

func newKey(s KeySource, value []byte) (Key, error) {
	if len(value) != KeySize {
		return Key{}, fmt.Errorf("%w: %s holds %d bytes, want exactly %d", ErrKey, s, len(value), KeySize)
	}
	return Key{bytes: [KeySize]byte(value), source: s}, nil
}

func readKeyFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // names the path
	}
	defer f.Close()
	value, err := io.ReadAll(io.LimitReader(f, keyFileLimit))
	if err != nil {
		return nil, err
	}
	if len(value) == keyFileLimit {
		return nil, errors.New("file " + path + " is longer than 1 MiB, want exactly 32 bytes")
	}
	return value, nil
}
