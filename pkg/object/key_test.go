package object_test

import (
	"errors"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nstance/nstance/pkg/object"
)

func TestCheckKey(t *testing.T) {
	for _, key := range []string{
		"a", "cluster/ca.crt", "instance/dev-1/default.01970a1c-e31e-7422-9cd5-e9651d11cc97-knc.json", "...", ".x", "a b", "ü/日",
		strings.Repeat("n", object.MaxSegment), strings.Repeat("abc/", 255) + "abcd",
	} {
		if err := object.CheckKey(key); err != nil {
			t.Errorf("%.40q: %v", key, err)
		}
	}
	for key, why := range map[string]string{
		"": "empty", "/a": "empty segment", "a/": "empty segment", "a//b": "empty segment", "a/./b": `"."`, "../a": `".."`,
		"a\x00b": "byte 1", "a\u0085": "byte 1", "a\ufffe": "byte 1", "\xff": "UTF-8",
		strings.Repeat("n", object.MaxSegment+1): "241", strings.Repeat("abc/", 256) + "a": "1025",
	} {
		err := object.CheckKey(key)
		if !errors.Is(err, object.ErrInvalidKey) || !strings.Contains(err.Error(), why) {
			t.Errorf("%.40q: %v, want an ErrInvalidKey that says %q", key, err, why)
		}
	}
}

// FuzzCheckKey: an accepted key is a clean relative path, which can't leave the folder it is
// joined to.
func FuzzCheckKey(f *testing.F) {
	for _, key := range []string{"", "a", "a/b", "../a", "a/../../b", "a//b", "./a", "a/.", "a\x00", "\xff", "é", "a\\..\\b"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if object.CheckKey(key) != nil {
			return
		}
		joined := path.Join("/root", key)
		if joined != "/root/"+key || !strings.HasPrefix(joined, "/root/") || len(key) > object.MaxKey || !utf8.ValidString(key) {
			t.Errorf("accepted %q, which becomes %q", key, joined)
		}
		if strings.ContainsAny(key, "\x00\n\r") {
			t.Errorf("accepted a control character in %q", key)
		}
	})
}

func TestPrecondition(t *testing.T) {
	for _, c := range []struct {
		name    string
		pre     object.Precondition
		current object.ETag
		want    bool
	}{
		{"always, absent", object.Precondition{}, "", true},
		{"always, present", object.Precondition{}, "e", true},
		{"if-absent, absent", object.IfAbsent(), "", true},
		{"if-absent, present", object.IfAbsent(), "e", false},
		{"if-match, same", object.IfMatch("e"), "e", true},
		{"if-match, other", object.IfMatch("e"), "f", false},
		{"if-match, absent", object.IfMatch("e"), "", false},
		{"empty if-match, absent", object.IfMatch(""), "", false},
		{"empty if-match, present", object.IfMatch(""), "e", false},
	} {
		if got := c.pre.Holds(c.current); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
