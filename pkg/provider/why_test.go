package provider_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/nstance/nstance/pkg/provider"
)

func TestWhy(t *testing.T) {
	for reason, want := range map[string]string{
		"":                                 "",
		"exit code 137":                    "exit code 137",
		"Client.InternalError: é\x00\n\tx": "Client.InternalError: é x",
		"\x1b[31mred\x1b[0m \u202e":        "[31mred [0m",
		"bad \xff byte":                    "bad \uFFFD byte",
		strings.Repeat("x", 256):           strings.Repeat("x", 256),
		strings.Repeat("x", 257):           strings.Repeat("x", 253) + "…",
		strings.Repeat("é", 200):           strings.Repeat("é", 126) + "…",
	} {
		if got := (provider.VM{Reason: reason}).Why(); got != want {
			t.Errorf("%q: %q, want %q", reason, got, want)
		}
	}
}

func FuzzWhy(f *testing.F) {
	f.Add("exit code 1\n")
	f.Add(strings.Repeat("é\xff", 500))
	f.Fuzz(func(t *testing.T, reason string) {
		why := provider.VM{Reason: reason}.Why()
		if len(why) > 256 || !utf8.ValidString(why) || strings.ContainsFunc(why, unicode.IsControl) {
			t.Errorf("%q becomes %q", reason, why)
		}
	})
}
