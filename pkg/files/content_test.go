package files_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nstance/nstance/pkg/files"
)

func TestNames(t *testing.T) {
	for _, name := range []string{
		"a.crt", "A-b_c.1.key", "kubelet.pub", "_.json", "x.env", "9.conf", "a..conf", strings.Repeat("a", 121) + ".json",
	} {
		if err := files.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", ".", "..", "a", ".crt", ".a.crt", "-a.crt", "a.txt", "a.crt.sh", "a.CRT", "../a.crt", "/a.crt", "a/b.crt", `a\b.crt`,
		`..\a.crt`, "a\x00.crt", "a.crt\x00", "a.crt\n", "\na.crt", "a b.crt", "ä.crt", "a:b.crt", "config.hash", ".nstance", "a.crt/",
		"./a.crt", strings.Repeat("a", 300) + ".crt", strings.Repeat("a", 122) + ".json",
	} {
		if err := files.CheckName(name); err == nil || len(err.Error()) > 600 {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".a", "a/b", "..", "a.", "-a", "a\x00", strings.Repeat("a", 129)} {
		if files.CheckKeyName(name) == nil {
			t.Errorf("%q is a key name", name)
		}
	}
	if err := files.CheckKeyName("kubelet-client.2"); err != nil {
		t.Error(err)
	}
	if err := files.CheckNames([]string{"a.crt", "b.crt", "A.CRT"}); err == nil {
		t.Error("a bad extension passes")
	}
	if err := files.CheckNames([]string{"a.crt", "b.crt", "A.crt"}); err == nil || !strings.Contains(err.Error(), "a.crt and A.crt") {
		t.Errorf("names that differ by case: %v", err)
	}
	var many []string
	for i := range files.MaxFiles + 1 {
		many = append(many, fmt.Sprintf("%d.conf", i))
	}
	if files.CheckNames(many[1:]) != nil || files.CheckNames(many) == nil {
		t.Error("the bound on the number of files is wrong")
	}
}

func TestContents(t *testing.T) {
	cert, key, public := certificate(t, time.Now())
	for _, c := range []struct{ name, content, wrong string }{
		{"a.crt", cert, ""},
		{"a.crt", "# the CA\n" + cert + "\n# and another\n" + cert, ""},
		{"a.crt", "", "PEM"},
		{"a.crt", key, "PRIVATE KEY"},
		{"a.crt", cert + key, "block 2"},
		{"a.crt", cert[:len(cert)-10], "each whole"},
		{"a.crt", cert + cert[:40], "each whole"},
		{"a.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "block 1 is not a certificate"},
		{"a.key", key, ""},
		{"a.key", key[:len(key)/2], "each whole"},
		{"a.key", "secret", "PEM"},
		{"a.pub", public, ""},
		{"a.pub", "ssh-ed25519 AAAA", "PEM"},
		{"a.json", ` {"a": [1]} `, ""},
		{"a.json", `{"a": "secret"`, "not JSON"},
		{"a.json", `{} {}`, "not JSON"},
		{"a.json", "", "not JSON"},
		{"a.conf", "\x00\xff anything", ""},
		{"a.conf", "", ""},
		{"a.conf", strings.Repeat("a", files.MaxFileSize), ""},
		{"a.conf", strings.Repeat("a", files.MaxFileSize+1), "at most 1048576"},
		{"a.env", "", ""},
		{"a.env", "# comment\n\nA=1\nb_2= c d = \"e\" \nC=\nD=\"x \\\" y\"\nE='it\"s'\n", ""},
		{"a.env", "A=1\nB", "line 2"},
		{"a.env", "A =1", "NAME=value"},
		{"a.env", "export A=1", "NAME=value"},
		{"a.env", "1A=1", "NAME=value"},
		{"a.env", "=1", "NAME=value"},
		{"a.env", "A=1\r\n", "control"},
		{"a.env", "A=\x00", "control"},
		{"a.env", "A=\xff", "UTF-8"},
		{"a.env", `A="secret`, "quote"},
		{"a.env", `A="secret\"`, "quote"},
		{"a.env", `A="a" b"`, "quote"},
		{"a.env", `A='it's'`, "quote"},
	} {
		err := files.CheckContent(c.name, []byte(c.content))
		switch {
		case c.wrong == "" && err != nil:
			t.Errorf("%s with %.60q: %v", c.name, c.content, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s with %.60q: %v, want %q in it", c.name, c.content, err, c.wrong)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the error %v shows the content", c.name, err)
		}
	}
}

func TestLeaf(t *testing.T) {
	end := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	leaf, _, public := certificate(t, end)
	issuer, _, _ := certificate(t, end.Add(time.Hour))
	block, _ := pem.Decode([]byte(public))
	got, err := files.ReadLeaf([]byte(leaf + issuer))
	if err != nil || !got.NotAfter.Equal(end) || got.PublicKeySHA256 != files.Digest(block.Bytes) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := files.ReadLeaf(nil); err == nil {
		t.Error("an empty file has a leaf")
	}
}

func TestFailures(t *testing.T) {
	one := errors.Join(errors.New("x"), fmt.Errorf("stage: %w", &files.FileError{Name: "a.crt", Err: errors.New("bad")}))
	if got := files.Failures(one, []string{"a.crt", "b.crt"}); len(got) != 1 || got["a.crt"] != "bad" {
		t.Errorf("got %v", got)
	}
	whole := errors.New(strings.Repeat("ä", 1000))
	got := files.Failures(whole, []string{"a.crt", "../b.crt"})
	if len(got) != 1 || len(got["a.crt"]) > 300 || !utf8.ValidString(got["a.crt"]) {
		t.Errorf("got %v", got)
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range []string{"a.crt", "..", "a/../b.crt", "a\x00.key", ".hidden.conf", "config.hash", "A.crt"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if files.CheckName(name) != nil {
			return
		}
		if strings.ContainsAny(name, "/\\\x00\n") || name[0] == '.' || len(name) > 128 || name == "config.hash" {
			t.Errorf("%q is a name", name)
		}
	})
}

func FuzzContents(f *testing.F) {
	cert, key, public := certificate(f, time.Now())
	for _, content := range []string{cert, key, public, `{"a": 1}`, "A=1\n# b\n", "A='", "-----BEGIN CERTIFICATE-----", ""} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, name := range []string{"a.crt", "a.key", "a.pub", "a.json", "a.env", "a.conf"} {
			if err := files.CheckContent(name, content); err == nil && name == "a.crt" {
				if _, err := files.ReadLeaf(content); err != nil {
					t.Errorf("accepted a certificate without a leaf: %v", err)
				}
			}
		}
	})
}

// FuzzEnv parses every accepted file in the simplest way, and must find only names.
func FuzzEnv(f *testing.F) {
	for _, content := range []string{"A=1", "A=\"\\\"\"\n", "#\n\n \nB_1='x'", "A", "export A=1"} {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content string) {
		if files.CheckContent("a.env", []byte(content)) != nil {
			return
		}
		for line := range strings.SplitSeq(content, "\n") {
			line := strings.TrimSpace(line)
			if name, _, ok := strings.Cut(line, "="); line != "" && line[0] != '#' && (!ok || name == "" || strings.ContainsAny(name, " \t\"'")) {
				t.Errorf("accepted the line %q", line)
			}
		}
	})
}
