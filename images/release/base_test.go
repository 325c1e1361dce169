package release_test

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/nstance/nstance/images/base"
	"github.com/nstance/nstance/images/release"
)

// TestCheckBase: a base that has moved on, or that is not for every architecture, is
// found before anything is released.
func TestCheckBase(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	push := func(tag string, architectures ...string) (digest string) {
		index, err := base.Index(architectures)
		if err != nil {
			t.Fatal(err)
		}
		reference, err := release.PushIndex(t.Context(), index, host+"/static", tag)
		if err != nil {
			t.Fatal(err)
		}
		_, digest, _ = strings.Cut(reference, "@")
		return digest
	}
	good, half := push("good", "amd64", "arm64"), push("half", "amd64")
	for _, c := range []struct{ base, want string }{
		{host + "/static:good@" + good, ""},
		{host + "/static:good@" + half, good + " now"},
		{host + "/static:half@" + half, "not for arm64"},
		{host + "/static:none@" + good, "none"},
		{host + "/static:good", "defaultBaseImage"},
		{"", "defaultBaseImage"},
	} {
		file := filepath.Join(t.TempDir(), ".ko.yaml")
		if err := os.WriteFile(file, []byte("defaultBaseImage: "+c.base+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		reference, err := release.CheckBase(t.Context(), file)
		switch {
		case c.want == "" && (err != nil || reference != c.base):
			t.Errorf("%s: %s, %v", c.base, reference, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: %v, want an error with %q", c.base, err, c.want)
		}
	}
}

// TestBaseIsWatched: the rule that tells of a new base finds the one that is pinned.
func TestBaseIsWatched(t *testing.T) {
	var rules struct {
		CustomManagers []struct{ MatchStrings []string }
	}
	text, err := os.ReadFile("../../.github/renovate.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &rules); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	config, err := os.ReadFile("../../.ko.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rules.CustomManagers {
		found := regexp.MustCompile(m.MatchStrings[0]).FindSubmatch(config)
		if len(found) == 4 && string(found[1]) == "gcr.io/distroless/static-debian13" && string(found[2]) == "nonroot" {
			return
		}
	}
	t.Errorf("no rule of %+v finds it", rules)
}

// TestTarget: what would publish what only this machine has is refused.
func TestTarget(t *testing.T) {
	for _, c := range []struct {
		target release.Target
		want   string
	}{
		{release.Target{Repository: "ghcr.io/nstance"}, ""},
		{release.Target{Repository: "127.0.0.1:5017/nstance", Base: "127.0.0.1:5017/base"}, ""},
		{release.Target{Repository: "ghcr.io/nstance", Base: "gcr.io/distroless/static:nonroot"}, ""},
		{release.Target{Repository: "ghcr.io/nstance", Base: "127.0.0.1:5017/base"}, "unset KO_DEFAULTBASEIMAGE"},
		{release.Target{Repository: "ghcr.io/nstance", Base: "localhost:5000/base:x"}, "unset KO_DEFAULTBASEIMAGE"},
		{release.Target{Repository: "ghcr.io/Nstance"}, "repository"},
		{release.Target{Repository: "ghcr.io/nstance", Programs: []string{"nstance-agent"}}, ""},
		{release.Target{Repository: "ghcr.io/nstance", Programs: []string{"nstance-agent", "dev"}}, `program "dev": want some of nstance-server`},
		{release.Target{Repository: "ghcr.io/nstance", Base: "not a reference"}, "base image"},
	} {
		err := c.target.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.target, err, c.want)
		}
	}
}
