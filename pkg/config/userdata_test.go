package config_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
)

// small is a provider that takes a limited number of bytes of userdata.
func small(limit int) config.Checks {
	return config.Checks{Machine: func(_ fleet.Group, _ map[string]any, userdata []byte) (wrong config.Problems) {
		if len(userdata) > limit {
			wrong = append(wrong, config.Problem{Path: "userdata", Message: fmt.Sprintf("%d bytes", len(userdata))})
		}
		return wrong
	}}
}

// withUserdata returns pickyText with userdata of the template knd.
func withUserdata(t *testing.T, content, encoding string) []byte {
	t.Helper()
	quoted, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprintf(`"knd": { "kind": "knd", "userdata": { "encoding": %q, "content": %s },`, encoding, quoted)
	return []byte(strings.Replace(pickyText, `"knd": { "kind": "knd",`, own, 1))
}

// TestUserdataIsRecognized: rendered userdata begins with what tells a machine what it is.
func TestUserdataIsRecognized(t *testing.T) {
	const path = "templates.knd.userdata.content: "
	for content, want := range map[string]string{
		"":                                 "",
		"#!/bin/sh\n\n  true\n":            "",
		"#cloud-config\r\n":                "", // YAML has such line ends
		"x":                                "",
		"{{ $n := 1 -}}\n#!/bin/sh\n":      "",
		"\uFEFF#!/bin/sh\n":                path + "begins with a byte order mark",
		"\n#!/bin/sh\n":                    path + "the first line is empty when rendered",
		"\r\n#cloud-config\n":              path + "the first line is empty when rendered",
		" \t\n#cloud-config\n":             path + "the first line is empty when rendered",
		"\n":                               "", // nothing at all
		"{{ $n := 1 }}\n#!/bin/sh\n":       path + "the first line is empty when rendered",
		"  #!/bin/sh\n":                    path + "begins with white space when rendered",
		"\u00a0#!/bin/sh\n":                path + "begins with white space when rendered",
		"#!/bin/sh\r\ntrue\r\n":            "", // cloud-init converts it
		"\n\uFEFF#!/bin/sh\n":              path + "begins with a byte order mark",
		"{{ .Vars.made_up }}\n#!/bin/sh\n": "", // an instance's own vars may have it
	} {
		for _, encoding := range []string{"plain", "gzip"} {
			_, err := config.ParseWith(withUserdata(t, content, encoding), small(1<<20))
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s %q: %v, want %q", encoding, content, err, want)
			}
		}
	}
}

// TestUserdataIsJudgedAsEncoded: the provider judges what a machine would get, and its problem has
// the path of the layer that has the userdata.
func TestUserdataIsJudgedAsEncoded(t *testing.T) {
	long := "#!/bin/sh\n" + strings.Repeat("true\n", 300)
	if _, err := config.ParseWith(withUserdata(t, long, "gzip"), small(1000)); err != nil {
		t.Errorf("compressed: %v", err)
	}
	if _, err := config.ParseWith(withUserdata(t, long, "plain"), small(1000)); err == nil ||
		!strings.Contains(err.Error(), "templates.knd.userdata: 1510 bytes") {
		t.Errorf("plain: %v", err)
	}
	const defaults = `"defaults": { "args"`
	text := strings.Replace(pickyText, defaults, `"defaults": { "userdata": { "content": "#!/bin/sh\n{{ .Instance.ID }}" }, "args"`, 1)
	if _, err := config.ParseWith([]byte(text), small(10)); err == nil || !strings.Contains(err.Error(), "defaults.userdata: ") {
		t.Errorf("of the defaults: %v", err)
	}
	if _, err := config.ParseWith(withUserdata(t, "#!/bin/sh", "base64"), small(1000)); err == nil ||
		!strings.Contains(err.Error(), `userdata.encoding: "base64" is not valid: want plain or gzip`) {
		t.Errorf("an encoding that a machine does not undo: %v", err)
	}
}

// TestArgsBesideUserdata: args are judged also if the userdata needs the vars of an instance.
func TestArgsBesideUserdata(t *testing.T) {
	text := strings.Replace(string(withUserdata(t, "{{ .Vars.made_up }}", "plain")), `"disk": 5`, `"disk": 50`, 1)
	if _, err := config.ParseWith([]byte(text), new(picky).checks()); err == nil || !strings.Contains(err.Error(), "args.disk: too large") {
		t.Errorf("%v", err)
	}
}

// TestUserdataOfOverrides: the userdata of one instance is judged with its own vars.
func TestUserdataOfOverrides(t *testing.T) {
	s, err := config.ParseWith(withUserdata(t, "#!/bin/sh\n{{ .Vars.more }}", "plain"), small(100))
	if err != nil {
		t.Fatal(err)
	}
	groups, _ := s.Resolve(nil)
	g := groups[fleet.GroupKey{Tenant: "default", Name: "web"}]
	for more, want := range map[string]string{"x": "", strings.Repeat("x", 100): "userdata: 110 bytes"} {
		err := s.CheckOverrides(g, fleet.Overrides{Vars: map[string]any{"more": more}}, small(100))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", more, err, want)
		}
	}
	if err := s.CheckOverrides(g, fleet.Overrides{}, small(100)); err == nil || !strings.Contains(err.Error(), "render userdata") {
		t.Errorf("without the var: %v", err)
	}
}

// TestSampleIsAsLongAsAnyInstance: userdata that is valid as judged is so for each instance: with
// the longest names, and while two CAs are trusted.
func TestSampleIsAsLongAsAnyInstance(t *testing.T) {
	const content = "{{ .Nonce }}{{ .Cluster.CACert }}"
	facts := longest(t)
	for _, encoding := range []string{"plain", "gzip"} {
		var sampled int
		_, err := config.ParseWith(withUserdata(t, content, encoding), config.Checks{
			Machine: func(g fleet.Group, _ map[string]any, userdata []byte) config.Problems {
				if g.Kind == "knd" {
					sampled = len(userdata)
				}
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		one, err := config.NewTemplates().For(facts).Userdata(fleet.Userdata{Encoding: encoding, Content: content})
		if err != nil {
			t.Fatal(err)
		}
		if len(one) > sampled || sampled > len(one)*5/4 {
			t.Errorf("%s: a sample has %d bytes, a real instance %d: want no less, and not much more", encoding, sampled, len(one))
		}
	}
}

// longest returns the nonce and the CAs of an instance with the longest names.
func longest(t *testing.T) config.Facts {
	t.Helper()
	name, now := strings.Repeat("n", fleet.MaxNameLength), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var facts config.Facts
	for range 2 {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		ca, err := pki.NewCA(pki.CAConfig{Cluster: name, Key: key, Now: now, Random: rand.Reader})
		if err != nil {
			t.Fatal(err)
		}
		facts.Cluster.CACert += string(pki.EncodeCertificate(ca.Certificate()))
		const id = "knd" + "01jd3kqw00e0080000000000aa"
		facts.Nonce, err = nonce.Mint(key, nonce.Claims{
			Kind: nonce.KindAgent, Subject: id, ClusterID: name, Tenant: name, Shard: name, ConfigHash: strings.Repeat("f", 64), ID: id,
			IssuedAt: now, NotBefore: now, ExpiresAt: now.Add(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return facts
}
