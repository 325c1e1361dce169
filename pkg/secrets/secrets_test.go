package secrets_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/secrets"
)

const (
	prefix = "cluster/secret/"
	keyA   = "ajR8vQ2mZs5LxW0cTq7YbN4kHd1GfUe9"
	keyB   = "bP3xKw6tVn9RyC2sMz5JhL8gFq1DaTe4"
	weak   = "password-password-password-passw" // eight different bytes
)

func seeded(n uint64) io.Reader {
	var seed [32]byte
	for i := range 8 {
		seed[i] = byte(n >> (8 * i))
	}
	return rand.NewChaCha8(seed)
}

func env(values map[string]string) secrets.Sources {
	return secrets.LocalSources(func(name string) string { return values[name] })
}

func loadKey(t testing.TB, value string) secrets.Key {
	t.Helper()
	name := "KEY_" + value[:1]
	key, err := secrets.LoadKey(t.Context(), secrets.KeySource{Provider: "env", Source: name}, env(map[string]string{name: value}))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sealed(t testing.TB, store object.Store, seed uint64, keys ...string) *secrets.Sealed {
	t.Helper()
	cfg := secrets.SealedConfig{Store: store, Prefix: prefix, Random: seeded(seed), Key: loadKey(t, keys[0])}
	for _, old := range keys[1:] {
		cfg.OldKeys = append(cfg.OldKeys, loadKey(t, old))
	}
	s, err := secrets.NewSealed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t testing.TB, s secrets.Secrets, name, value string, want bool) {
	t.Helper()
	if created, err := s.Create(t.Context(), name, []byte(value)); err != nil || created != want {
		t.Fatalf("create %s: got %t, %v, want %t", name, created, err, want)
	}
}

func wantValue(t testing.TB, s secrets.Secrets, name, want string) {
	t.Helper()
	if got, err := s.Get(t.Context(), name); err != nil || string(got) != want {
		t.Errorf("get %s: got %q, %v, want %q", name, got, err, want)
	}
}

func TestASecretIsCreatedOnce(t *testing.T) {
	s := sealed(t, mem.New(mem.Config{}), 1, keyA)
	if _, err := s.Get(t.Context(), "x"); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	create(t, s, "x", "one", true)
	create(t, s, "x", "two", false)
	wantValue(t, s, "x", "one")
	create(t, s, "empty", "", true)
	wantValue(t, s, "empty", "")
	_, err := s.Create(t.Context(), "large", make([]byte, secrets.MaxValue+1))
	if err == nil || !strings.Contains(err.Error(), "at most 65536") {
		t.Errorf("got %v, want a refusal that names the limit", err)
	}
}

// The stored form is a contract: other tools and later versions read it.
func TestSealedForm(t *testing.T) {
	store := mem.New(mem.Config{})
	create(t, sealed(t, store, 1, keyA), "x", "value", true)
	o, err := store.Get(t.Context(), prefix+"x")
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher([]byte(keyA))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, 12)
	if _, err := io.ReadFull(seeded(1), nonce); err != nil || !bytes.Equal(nonce, o.Body[:12]) {
		t.Errorf("the body does not begin with the random nonce (%v)", err)
	}
	if value, err := aead.Open(nil, o.Body[:12], o.Body[12:], []byte(prefix+"x")); err != nil || string(value) != "value" {
		t.Errorf("got %q, %v", value, err)
	}
}

func TestOldKeysOnlyDecrypt(t *testing.T) {
	store := mem.New(mem.Config{})
	create(t, sealed(t, store, 1, keyA), "old", "one", true)
	both := sealed(t, store, 2, keyB, keyA)
	wantValue(t, both, "old", "one")
	create(t, both, "new", "two", true)
	wantValue(t, sealed(t, store, 3, keyB), "new", "two")
	if _, err := sealed(t, store, 4, keyA).Get(t.Context(), "new"); !errors.Is(err, secrets.ErrSealed) {
		t.Errorf("the old key sealed something: %v", err)
	}
}

func TestWhatDoesNotOpen(t *testing.T) {
	store := mem.New(mem.Config{})
	s := sealed(t, store, 1, keyA)
	create(t, s, "x", "value", true)
	o, err := store.Get(t.Context(), prefix+"x")
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, body []byte) {
		if _, err := store.Put(t.Context(), prefix+name, body, object.Precondition{}); err != nil {
			t.Fatal(err)
		}
	}
	put("copied", o.Body)
	put("short", o.Body[:20])
	put("nothing", nil)
	for i := range o.Body {
		changed := bytes.Clone(o.Body)
		changed[i] ^= 1
		put(fmt.Sprintf("changed%d", i), changed)
	}
	for i := range o.Body {
		if _, err := s.Get(t.Context(), fmt.Sprintf("changed%d", i)); !errors.Is(err, secrets.ErrSealed) {
			t.Errorf("with byte %d changed: got %v, want ErrSealed", i, err)
		}
	}
	for name, want := range map[string]string{"copied": "env KEY_a", "short": "20 bytes", "nothing": "0 bytes"} {
		if _, err := s.Get(t.Context(), name); !errors.Is(err, secrets.ErrSealed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want ErrSealed with %q", name, err, want)
		}
	}
	_, err = sealed(t, store, 2, keyB).Get(t.Context(), "x")
	if !errors.Is(err, secrets.ErrSealed) || !strings.Contains(err.Error(), "old_encryption_keys") ||
		!strings.Contains(err.Error(), "env KEY_b") {
		t.Errorf("with another key: got %v, want ErrSealed that says what to do", err)
	}
}

func TestRefusedNamesAndPrefixes(t *testing.T) {
	s := sealed(t, mem.New(mem.Config{}), 1, keyA)
	for _, name := range []string{"", ".", "..", "a/b", "../x", "-x", "x.", "a b", "é", strings.Repeat("x", 129)} {
		if _, err := s.Get(t.Context(), name); err == nil || errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("get %q: got %v, want a refusal", name, err)
		}
		if _, err := s.Create(t.Context(), name, nil); err == nil {
			t.Errorf("create %q: want a refusal", name)
		}
	}
	for _, p := range []string{"", "/", "cluster/secret", "/cluster/", "a//", "../"} {
		cfg := secrets.SealedConfig{Store: mem.New(mem.Config{}), Prefix: p, Key: loadKey(t, keyA), Random: seeded(1)}
		if _, err := secrets.NewSealed(cfg); err == nil || !strings.Contains(err.Error(), "cluster/secret/") {
			t.Errorf("prefix %q: got %v, want a refusal with an example", p, err)
		}
	}
	if _, err := secrets.NewSealed(secrets.SealedConfig{Prefix: prefix}); !errors.Is(err, secrets.ErrKey) {
		t.Errorf("without a key: got %v, want ErrKey", err)
	}
}

func TestCreateSurvivesLostReplies(t *testing.T) {
	for name, fault := range map[string]objecttest.Fault{
		"dropped": objecttest.Dropped, "reply lost": objecttest.ReplyLost, "late": objecttest.Late,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				faults := objecttest.NewFaults(mem.New(mem.Config{}), objecttest.Script(objecttest.Outcome{Fault: fault, Delay: time.Second}))
				s := sealed(t, faults, 1, keyA)
				create(t, s, "x", "mine", true)
				faults.Wait()
				wantValue(t, s, "x", "mine")
			})
		})
	}
}

func TestAStoreThatIsDownIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sealed(t, objecttest.NewFaults(mem.New(mem.Config{}), objecttest.Always(objecttest.Outcome{Fault: objecttest.Dropped})), 1, keyA)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if created, err := s.Create(ctx, "x", nil); created || !errors.Is(err, object.ErrUnknown) {
			t.Errorf("create: got %t, %v, want ErrUnknown", created, err)
		}
		if _, err := s.Get(ctx, "x"); !errors.Is(err, object.ErrUnknown) || errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("get: got %v, want ErrUnknown", err)
		}
	})
}

func TestEncryptionKeys(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) secrets.KeySource {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return secrets.KeySource{Provider: "file", Source: path}
	}
	pipe := filepath.Join(dir, "pipe") // without a writer
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	lookup := env(map[string]string{"GOOD": keyA, "EMPTY": "", "SHORT": keyA[:31], "LINE": keyA + "\n", "LONG": keyA + keyA, "WEAK": weak,
		"ELEVEN": "abcdefghijkabcdefghijkabcdefghij", "TWELVE": "abcdefghijklabcdefghijklabcdefgh"})
	variable := func(name string) secrets.KeySource { return secrets.KeySource{Provider: "env", Source: name} }
	for name, c := range map[string]struct {
		source secrets.KeySource
		want   error
		text   string
	}{
		"variable":               {variable("GOOD"), nil, ""},
		"file":                   {file("good", keyA), nil, ""},
		"file, newline":          {file("line", keyA+"\n"), nil, ""},
		"file, 32nd a newline":   {file("binary", keyA[:31]+"\n"), nil, ""},
		"variable not set":       {variable("NONE"), secrets.ErrKey, "env NONE: the environment variable is not set"},
		"variable empty":         {variable("EMPTY"), secrets.ErrKey, "env EMPTY: the environment variable is not set"},
		"variable short":         {variable("SHORT"), secrets.ErrKey, "env SHORT holds 31 bytes, want exactly 32"},
		"variable with newline":  {variable("LINE"), secrets.ErrKey, "33 bytes"},
		"variable long":          {variable("LONG"), secrets.ErrKey, "64 bytes"},
		"variable, of words":     {variable("WEAK"), secrets.ErrKey, "env WEAK is not random enough: it has 8 different bytes, want at least 12"},
		"variable, too few":      {variable("ELEVEN"), secrets.ErrKey, "11 different bytes, want at least 12: generate one with openssl"},
		"variable, just enough":  {variable("TWELVE"), nil, ""},
		"file, zeros":            {file("zeros", strings.Repeat("\x00", 32)), secrets.ErrKey, "1 different bytes"},
		"file, of words":         {file("words", weak+"\n"), secrets.ErrKey, "not random enough"},
		"file missing":           {secrets.KeySource{Provider: "file", Source: filepath.Join(dir, "none")}, secrets.ErrKey, "none: no such file"},
		"file is a directory":    {secrets.KeySource{Provider: "file", Source: dir}, secrets.ErrKey, "is a directory"},
		"file empty":             {file("empty", ""), secrets.ErrKey, "0 bytes"},
		"file short and newline": {file("short", keyA[:30]+"\n"), secrets.ErrKey, "31 bytes"},
		"file, two newlines":     {file("lines", keyA+"\n\n"), secrets.ErrKey, "34 bytes"},
		"file, CR LF":            {file("crlf", keyA+"\r\n"), secrets.ErrKey, "34 bytes"},
		"file, a space":          {file("space", keyA+" "), secrets.ErrKey, "33 bytes"},
		"file, long":             {file("long", strings.Repeat(keyA, 1<<15)), secrets.ErrKey, "longer than 1 MiB"},
		"file is a device":       {secrets.KeySource{Provider: "file", Source: "/dev/zero"}, secrets.ErrKey, "want a regular file"},
		"file is a pipe":         {secrets.KeySource{Provider: "file", Source: pipe}, secrets.ErrKey, "want a regular file"},
		"no source":              {variable(""), secrets.ErrKey, "no source"},
		"no provider":            {secrets.KeySource{Source: "GOOD"}, secrets.ErrKey, `unknown provider ""`},
		"AWS secrets":            {secrets.KeySource{Provider: "aws-secrets-manager", Source: "x"}, secrets.ErrUnsupported, "want env or file"},
		"AWS parameters":         {secrets.KeySource{Provider: "aws-parameter-store", Source: "x"}, secrets.ErrUnsupported, "want env or file"},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := secrets.LoadKey(t.Context(), c.source, lookup)
			if !errors.Is(err, c.want) || (err != nil && !strings.Contains(err.Error(), c.text)) {
				t.Fatalf("got %v, want %v with %q", err, c.want, c.text)
			}
			text := fmt.Sprintf("%v %+v %#v %s %x %v", key, key, key, key, key, err)
			if strings.Contains(text, keyA[:8]) || strings.Contains(text, "616a") {
				t.Errorf("the key is shown: %s", text)
			}
		})
	}
}

// TestKeyFromElsewhere: a source of another kind is used by its name in the config; its error
// includes the key's name, and one that hangs is abandoned.
func TestKeyFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources := secrets.Sources{"vault": func(ctx context.Context, name string) ([]byte, error) {
			switch name {
			case "good":
				return []byte(keyA), nil
			case "hangs":
				time.Sleep(time.Hour)
				return []byte(keyA), nil
			case "patient":
				<-ctx.Done()
				return nil, ctx.Err()
			default:
				return nil, errors.New("access denied")
			}
		}}
		for name, want := range map[string]string{
			"good": "", "refused": "vault refused: access denied", "hangs": "vault hangs: no answer within 10s", "patient": "vault patient: ",
		} {
			began := time.Now()
			_, err := secrets.LoadKey(t.Context(), secrets.KeySource{Provider: "vault", Source: name}, sources)
			if (err == nil) != (want == "") || err != nil && (!errors.Is(err, secrets.ErrKey) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: it took %s", name, took)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := secrets.LoadKey(ctx, secrets.KeySource{Provider: "vault", Source: "hangs"}, sources)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("a caller that gives up: %v after %s", err, time.Since(began))
		}
		time.Sleep(2 * time.Hour) // the abandoned ones end
	})
}

func TestOpen(t *testing.T) {
	store := mem.New(mem.Config{})
	good := secrets.Config{
		Provider: "object-storage", Prefix: prefix, Store: store, Random: seeded(1),
		Key:     secrets.KeySource{Provider: "env", Source: "NEW"},
		OldKeys: []secrets.KeySource{{Provider: "env", Source: "OLD"}},
		Sources: env(map[string]string{"NEW": keyB, "OLD": keyA}),
	}
	create(t, sealed(t, store, 2, keyA), "x", "value", true)
	s, err := secrets.Open(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, "x", "value")
	for name, c := range map[string]struct {
		change func(*secrets.Config)
		want   string
	}{
		"AWS secrets":    {func(c *secrets.Config) { c.Provider = "aws-secrets-manager" }, "not supported by this build: want object-storage"},
		"AWS parameters": {func(c *secrets.Config) { c.Provider = "aws-parameter-store" }, "not supported by this build: want object-storage"},
		"no provider":    {func(c *secrets.Config) { c.Provider = "" }, `unknown provider ""`},
		"no key": {func(c *secrets.Config) { c.Key.Source = "NONE" },
			"encryption_key: bad encryption key: env NONE: the environment variable is not set"},
		"no old key": {func(c *secrets.Config) { c.OldKeys = []secrets.KeySource{{Provider: "env", Source: "NONE"}} },
			"old_encryption_keys[0]: "},
		"no prefix": {func(c *secrets.Config) { c.Prefix = "" }, "prefix"},
	} {
		cfg := good
		c.change(&cfg)
		if _, err := secrets.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

// TestAWeakKeyOpensOnly: a weak key opens what it sealed before, so that it can be sealed
// again, but seals nothing.
func TestAWeakKeyOpensOnly(t *testing.T) {
	store := mem.New(mem.Config{})
	block, err := aes.NewCipher([]byte(weak))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := []byte("twelve bytes")
	put(t, store, prefix+"x", string(aead.Seal(nonce, nonce, []byte("value"), []byte(prefix+"x"))))
	cfg := secrets.Config{
		Provider: "object-storage", Prefix: prefix, Store: store, Random: seeded(1),
		Key: secrets.KeySource{Provider: "env", Source: "NEW"}, OldKeys: []secrets.KeySource{{Provider: "env", Source: "WEAK"}},
		Sources: env(map[string]string{"NEW": keyB, "WEAK": weak}),
	}
	s, err := secrets.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, "x", "value")
	cfg.Key, cfg.OldKeys = cfg.OldKeys[0], nil
	if _, err := secrets.Open(t.Context(), cfg); !errors.Is(err, secrets.ErrKey) || !strings.Contains(err.Error(), "encryption_key: ") {
		t.Errorf("as the key that seals: %v", err)
	}
}

func FuzzUnseal(f *testing.F) {
	store := mem.New(mem.Config{})
	create(f, sealed(f, store, 1, keyA), "x", "value", true)
	o, err := store.Get(f.Context(), prefix+"x")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(o.Body)
	f.Add(o.Body[:28])
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		store := mem.New(mem.Config{})
		if _, err := store.Put(t.Context(), prefix+"x", body, object.Precondition{}); err != nil {
			t.Fatal(err)
		}
		value, err := sealed(t, store, 2, keyB, keyA).Get(t.Context(), "x")
		if bytes.Equal(body, o.Body) {
			if err != nil || string(value) != "value" {
				t.Errorf("got %q, %v", value, err)
			}
		} else if !errors.Is(err, secrets.ErrSealed) || value != nil {
			t.Errorf("%x opened as %q, %v", body, value, err)
		}
	})
}

func TestTrustIsNotShown(t *testing.T) {
	trust := bootstrap(t, mem.New(mem.Config{}), 1)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", slog.Any("trust", trust))
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", slog.Any("trust", trust))
	secret, err := json.Marshal(trust.NonceKey)
	if err != nil {
		t.Fatal(err)
	}
	text := log.String() + fmt.Sprintf("%v %+v %#v", trust, trust, trust)
	numbers := strings.Trim(fmt.Sprintf("%d", trust.NonceKey[:8]), "[]")
	if strings.Contains(text, string(secret)) || strings.Contains(text, numbers) || strings.Count(text, "trust of cluster example") != 5 {
		t.Errorf("shows %s", text)
	}
}
