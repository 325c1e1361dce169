package fleet_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
)

func TestNodeProviderID(t *testing.T) {
	for _, c := range []struct{ kind, zone, id, want string }{
		{"aws", "eu-central-1a", "i-0abc", "aws:///eu-central-1a/i-0abc"},
		{"docker", "", "4f1d", "docker:///4f1d"},
		{"docker", "here", "4f1d", "docker:///4f1d"},
		{"process", "", "knd01h455vb4pex5vsknk084sn02q", "process:///knd01h455vb4pex5vsknk084sn02q"},
		{"fake", "", "fake-00000001", "fake:///fake-00000001"},
		{"aws", "eu-central-1a", "", ""},
	} {
		if got := fleet.NodeProviderID(c.kind, c.zone, c.id); got != c.want {
			t.Errorf("%s %s %s: %q, want %q", c.kind, c.zone, c.id, got, c.want)
		}
	}
}
