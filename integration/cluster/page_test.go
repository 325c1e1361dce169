//go:build integration

package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// page is docs/install.md with the test's registry, cluster and shard.
type page struct {
	s    *fixture
	text string
}

func (f *fixture) page() page {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.Root, "docs", "install.md"))
	f.Must(err)
	return page{f, strings.NewReplacer(
		"registry.example.com/nstance", f.registry+"/"+f.Cluster,
		"cosign.key", filepath.Join(f.home, "cosign.key"), "cosign.pub", filepath.Join(f.home, "cosign.pub"),
		// The registry has no certificate, so Helm needs a flag.
		"--version 0.1.0", "--plain-http --version "+f.version, "10.0.0.1", f.net.Address(20).String(), "example-cluster", f.Cluster,
	).Replace(string(text))}
}

// block returns the only shell block that contains a text.
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
	out, _ := json.Marshal(text) // any string is accepted
	return string(out)
}
