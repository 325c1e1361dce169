package fleet_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

const exampleKey = "01970a1c-e31e-7422-9cd5-e9651d11cc97-knc"

func TestExample(t *testing.T) {
	id, err := fleet.ParseStorageKey(exampleKey)
	if err != nil {
		t.Fatal(err)
	}
	if want := fleet.InstanceID("knc01jw51srryegh9snf9cmeh3k4q"); id != want {
		t.Errorf("id %q, want %q", id, want)
	}
	if got := id.StorageKey(); got != exampleKey {
		t.Errorf("back: %s", got)
	}
	if got := id.Kind(); got != "knc" {
		t.Errorf("kind %q", got)
	}
	if got, want := id.Time().UnixMilli(), int64(0x01970a1ce31e); got != want {
		t.Errorf("time %d, want %d", got, want)
	}
}

func TestKnownEncodings(t *testing.T) {
	for key, want := range map[string]string{
		"00000000-0000-7000-8000-000000000000-knd": "knd0000000000e008000000000000",
		"ffffffff-ffff-7fff-bfff-ffffffffffff-knd": "knd7zzzzzzzzzfzzvzzzzzzzzzzzz",
		"00000000-0001-7000-8000-000000000001-opr": "opr0000000001e008000000000001",
	} {
		id, err := fleet.ParseStorageKey(key)
		if err != nil || string(id) != want {
			t.Errorf("%s: %q, %v, want %q", key, id, err, want)
		}
	}
}

func TestNewID(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123_456_789, time.UTC)
	random := rand.NewChaCha8([32]byte{1})
	seen := map[fleet.InstanceID]bool{}
	for range 1000 {
		id, err := fleet.NewID("knd", at, random)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fleet.ParseID(string(id)); err != nil {
			t.Fatal(err)
		}
		if seen[id] || id.Kind() != "knd" || !id.Time().Equal(at.Truncate(time.Millisecond)) {
			t.Fatalf("%s: kind %s, time %s", id, id.Kind(), id.Time())
		}
		seen[id] = true
		if back, err := fleet.ParseStorageKey(id.StorageKey()); err != nil || back != id {
			t.Fatalf("%s: %s, %v", id, back, err)
		}
	}
	if _, err := fleet.NewID("knd", at, iotest.ErrReader(errors.New("no entropy"))); err == nil {
		t.Error("made without randomness")
	}
}

// Ids of one kind, and storage keys of any, sort by time.
func TestOrder(t *testing.T) {
	random := rand.NewChaCha8([32]byte{2})
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var ids []fleet.InstanceID
	var keys []string
	for n := range 500 {
		at = at.Add(time.Duration(1+n*n) * time.Millisecond)
		id, err := fleet.NewID("knd", at, random)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		other, err := fleet.NewID([]string{"aaa", "zzz"}[n%2], at, random)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, other.StorageKey())
	}
	if !slices.IsSorted(ids) {
		t.Error("ids do not sort by time")
	}
	if !slices.IsSorted(keys) {
		t.Error("storage keys do not sort by time")
	}
}

func TestRejects(t *testing.T) {
	good, err := fleet.ParseStorageKey(exampleKey)
	if err != nil {
		t.Fatal(err)
	}
	suffix := string(good[3:])
	for name, id := range map[string]string{
		"empty": "", "kind alone": "knc", "too short": string(good[:28]), "too long": string(good) + "0",
		"capitals": strings.ToUpper(string(good)), "digit in kind": "kn1" + suffix, "not ASCII": "knç" + suffix[1:],
		"letter i": "knci" + suffix[1:], "letter l": string(good[:28]) + "l", "letter o": string(good[:28]) + "o",
		"letter u": string(good[:28]) + "u", "129 bits": "knc8" + suffix[1:],
		"version 4": "knd0000000000800800000000000a", "wrong variant": "knd0000000000e00000000000000a",
		"newline": string(good[:28]) + "\n", "a storage key": exampleKey,
	} {
		if got, err := fleet.ParseID(id); err == nil || !strings.Contains(err.Error(), "not an instance id") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, key := range map[string]string{
		"empty": "", "an id": string(good), "no kind": exampleKey[:36], "capitals": strings.ToUpper(exampleKey),
		"capital hex": "01970A1C-e31e-7422-9cd5-e9651d11cc97-knc", "hyphens elsewhere": "01970a1ce31e-7422-9cd5-e9651d11cc-97-knc",
		"no hyphens": "01970a1ce31e74229cd5e9651d11cc97-knc", "version 4": "01970a1c-e31e-4422-9cd5-e9651d11cc97-knc",
		"not hex": "01970a1c-e31e-7422-9cd5-e9651d11cc9g-knc", "short kind": "01970a1c-e31e-7422-9cd5-e9651d11cc97-kn",
		"trailing space": exampleKey + " ",
	} {
		if got, err := fleet.ParseStorageKey(key); err == nil || !strings.Contains(err.Error(), "not a storage key") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestCheckKind(t *testing.T) {
	for kind, ok := range map[string]bool{
		"knd": true, "opr": true, "": false, "kn": false, "kndd": false, "Knd": false, "k1d": false, "knd\n": false,
	} {
		if err := fleet.CheckKind(kind); (err == nil) != ok {
			t.Errorf("%q: %v", kind, err)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("knc01jw51srryegh9snf9cmeh3k4q")
	f.Add("knd7zzzzzzzzzfzzvzzzzzzzzzzzz")
	f.Add("knd8000000000e008000000000000")
	f.Add(exampleKey)
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := fleet.ParseID(s)
		if err != nil {
			if id != "" {
				t.Fatalf("%q: refused, and %q", s, id)
			}
			return
		}
		back, err := fleet.ParseStorageKey(id.StorageKey())
		if err != nil || back != id || string(id) != s {
			t.Fatalf("%q: %q, %q, %v", s, id, back, err)
		}
	})
}

func FuzzParseStorageKey(f *testing.F) {
	f.Add(exampleKey)
	f.Add("00000000-0000-7000-8000-000000000000-knd")
	f.Add("--------------------------------")
	f.Add("0-knd")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := fleet.ParseStorageKey(s)
		if err != nil {
			return
		}
		if parsed, err := fleet.ParseID(string(id)); err != nil || parsed != id || id.StorageKey() != s {
			t.Fatalf("%q: %q, %v", s, id, err)
		}
	})
}

func BenchmarkParseID(b *testing.B) {
	id, err := fleet.NewID("knd", time.Now(), bytes.NewReader(make([]byte, 10)))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := fleet.ParseID(string(id)); err != nil {
			b.Fatal(err)
		}
	}
}

func TestWithoutIDs(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	id, err := fleet.NewID("knd", at, rand.NewChaCha8([32]byte{1}))
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		"create of " + string(id) + " failed":              "create of  failed",
		string(id) + ", " + string(id):                     ", ",
		"create of knd" + string(id) + " in eu-1 failed":   "create of knd" + string(id) + " in eu-1 failed",
		"create of " + string(id[:20]) + " in eu-1 failed": "create of " + string(id[:20]) + " in eu-1 failed",
	} {
		if got := fleet.WithoutIDs(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}
