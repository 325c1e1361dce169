package admin_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/admin"
)

// FuzzParseFingerprint: an accepted fingerprint is normalised to 64 digits, whatever its
// notation.
func FuzzParseFingerprint(f *testing.F) {
	f.Add(strings.Repeat("aB", 32))
	f.Add(strings.Repeat("AB:", 31) + "ab")
	f.Add("ab")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := admin.ParseFingerprint(text)
		if err != nil {
			if got != "" || !strings.Contains(err.Error(), "64 hexadecimal digits") {
				t.Errorf("%q is %q, %v", text, got, err)
			}
			return
		}
		if again, err := admin.ParseFingerprint(got); err != nil || again != got || len(got) != 64 {
			t.Errorf("%q is parsed as %q, and that as %q, %v", text, got, again, err)
		}
	})
}

// FuzzParseKeySource: an accepted text is split into a provider and a source without loss.
func FuzzParseKeySource(f *testing.F) {
	for _, text := range []string{"env:OLD_KEY", "file:/a:b", "aws-secrets-manager:arn:aws:x", "vault:x", "env:", ":", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := admin.ParseKeySource(text)
		if err == nil && (got.Provider == "" || got.Source == "" || got.Provider+":"+got.Source != text) {
			t.Errorf("%q is %v", text, got)
		}
		if err != nil && !strings.Contains(err.Error(), "want env:VARIABLE") {
			t.Errorf("%q: %v", text, err)
		}
	})
}
