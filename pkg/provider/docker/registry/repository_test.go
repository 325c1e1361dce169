package registry_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider/docker/registry"
)

// TestMatch: a pattern selects repositories of one registry, whatever the tag.
func TestMatch(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("ab", 32)
	for _, c := range []struct {
		pattern, image string
		want           bool
	}{
		{"ghcr.io/n/agent", "ghcr.io/n/agent", true},
		{"ghcr.io/n/agent", "ghcr.io/n/agent:v1", true},
		{"ghcr.io/n/agent", "ghcr.io/n/agent:v1" + digest, true},
		{"ghcr.io/n/agent", "ghcr.io/n/agent" + digest, true},
		{"ghcr.io/n/agent", "ghcr.io/n/agent-debug", false},
		{"ghcr.io/n/agent", "ghcr.io/n/agent/x", false},
		{"ghcr.io/n/agent", "ghcr.io.evil.example/n/agent", false},
		{"ghcr.io/n/agent", "evil.example/ghcr.io/n/agent", false},
		{"ghcr.io/n/agent", "ghcr.io:5000/n/agent", false},
		{"ghcr.io/n/agent", "n/agent", false},
		{"ghcr.io/n/*", "ghcr.io/n/agent:v1", true},
		{"ghcr.io/n/*", "ghcr.io/n/a/b", false},
		{"ghcr.io/n/**", "ghcr.io/n/a/b", true},
		{"ghcr.io/n/**", "ghcr.io/n", false},
		{"ghcr.io/n/**", "ghcr.io/nn/a", false},
		{"ghcr.io/*/agent", "ghcr.io/team/agent", true},
		{"ghcr.io/*/**", "ghcr.io/team/a/b", true},
		{"ghcr.io/**", "ghcr.io/agent", true},
		{"localhost/**", "localhost/agent:v1", true},
		{"r.example:5000/agent", "r.example:5000/agent:v1", true},
		{"docker.io/redis", "docker.io/library/redis:7", true},
		{"docker.io/library/redis", "index.docker.io/redis", true},
		{"docker.io/team/**", "docker.io/team/a", true},
		{"docker.io/team/**", "docker.io/library/team", false},
		{"docker.io/**", "docker.io/redis", true},
		{"docker.io/redis", "redis", false},
		{"agent", "agent:dev", true},
		{"agent", "agent" + digest, true},
		{"agent", "docker.io/library/agent", false},
		{"*", "agent:dev", true},
		{"*", "ghcr.io/agent", false},
		{"team/*", "team/agent:dev", true},
		{"*/agent", "ghcr.io/agent", false},
		{"*", "", false},
		{"*", ":dev", false},
		{"ghcr.io/*", "ghcr.io/UPPER", false},
		{"ghcr.io/agent:v1", "ghcr.io/agent:v1", false}, // an invalid pattern
	} {
		if got := registry.Match(c.pattern, c.image); got != c.want {
			t.Errorf("%s for %s: %v, want %v", c.pattern, c.image, got, c.want)
		}
	}
}

func TestCheckPattern(t *testing.T) {
	for pattern, want := range map[string]string{
		"ghcr.io/n/agent": "", "ghcr.io/**": "", "agent": "", "team/*": "", "*": "", "docker.io/*": "", "docker.io/**": "", "127.0.0.1:1/ab": "",
		"": "has no repository", "ghcr.io/n/agent:v1": "a tag or a digest", "agent:dev": "a tag or a digest",
		"agent@sha256:" + strings.Repeat("ab", 32): "a tag or a digest", "ghcr.io/Agent": "can only contain",
		"*.example.com/a": "star in the registry", "r*.io/a": "star in the registry",
		"ghcr.io/a/**/b": "want * for", "ghcr.io/[ab]": "want * for",
		"ghcr.io/": "", "ghcr.io/a?": "want * for",
	} {
		err := registry.CheckPattern(pattern)
		if pattern == "ghcr.io/" { // with whatever message of the library
			if err == nil {
				t.Error("a registry alone was accepted as a pattern")
			}
			continue
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", pattern, err, want)
		}
	}
}

// FuzzMatch: a pattern that names a registry matches no image of another.
func FuzzMatch(f *testing.F) {
	f.Add("n/*", "ghcr.io/n/agent:v1")
	f.Add("**", "ghcr.io.evil.example/a")
	f.Add("n/agent", "evil.example/ghcr.io/n/agent")
	f.Fuzz(func(t *testing.T, pattern, image string) {
		if registry.Match("ghcr.io/"+pattern, image) && !strings.HasPrefix(image, "ghcr.io/") {
			t.Errorf("ghcr.io/%s matches %s", pattern, image)
		}
	})
}
