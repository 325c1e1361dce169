//go:build integration

package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// page is docs/install.md as it reads for the registry, cluster and shard of the story.
type page struct {
	s    *scene
	text string
}

func (s *scene) page() page {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.Root, "docs", "install.md"))
	s.Must(err)
	return page{s, strings.NewReplacer(
		"registry.example.com/nstance", s.registry+"/"+s.Cluster,
		"cosign.key", filepath.Join(s.home, "cosign.key"), "cosign.pub", filepath.Join(s.home, "cosign.pub"),
		// The registry has no certificate, which Helm has to be told.
		"--version 0.1.0", "--plain-http --version "+s.version, "10.0.0.1", s.net.Address(20).String(), "example-cluster", s.Cluster,
	).Replace(string(text))}
}

// block is the shell block that has a text in it, which is in one only.
func (p page) block(with string) string {
	p.s.Helper()
	var found []string
	for _, part := range strings.Split(p.text, "\n```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		if strings.Contains(block, with) {
			found = append(found, block)
		}
	}
	if len(found) != 1 {
		p.s.Fatalf("docs/install.md has %d blocks with %q", len(found), with)
	}
	return found[0]
}

func quoted(text string) string {
	out, _ := json.Marshal(text) // it takes any string
	return string(out)
}
