//go:build integration

package terraform_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestProtectedCluster: a destroy removes nothing of a protected cluster, and all of one that was
// applied without protection.
func TestProtectedCluster(t *testing.T) {
	offline(t)
	each(t, func(t *testing.T, p program) {
		modules, all := here.copied(t), fixtures()["cluster"]
		if _, err := p.apply(t, modules, all); err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(modules, "fixture")
		before := p.must(t, folder, "state", "list")
		out, err := p.run(t, folder, "destroy", "-auto-approve", "-no-color")
		if err == nil || !strings.Contains(out+err.Error(), "deletion_protection = false before") {
			t.Errorf("a destroy ends with %v, want it to say what has to be applied before\n%s", err, out)
		}
		if after := p.must(t, folder, "state", "list"); after != before {
			t.Errorf("a destroy that failed has left\n%s, want\n%s", after, before)
		}
		if after := dependencies(t, folder, "aws_s3_bucket"); !slices.ContainsFunc(after, func(on string) bool {
			return strings.HasSuffix(on, ".aws_secretsmanager_secret.key")
		}) {
			t.Errorf("the bucket depends on %v: want the key to go after it, even where the guard is passed by", after)
		}
		unprotected := fixture{modules: map[string]inputs{"cluster": with(all.modules["cluster"], inputs{"deletion_protection": false})}}
		if _, err := p.apply(t, modules, unprotected); err != nil {
			t.Fatal(err)
		}
		p.must(t, folder, "destroy", "-auto-approve", "-no-color")
		if left := strings.TrimSpace(p.must(t, folder, "state", "list")); left != "" {
			t.Errorf("without protection a destroy has left %s", left)
		}
	})
}

// TestRangesComeFirst: a subnet is created after the additional ranges of its VPC, and destroyed
// before them.
func TestRangesComeFirst(t *testing.T) {
	offline(t)
	modules := here.copied(t)
	if _, err := here.programs[0].apply(t, modules, fixtures()["ranges"]); err != nil {
		t.Fatal(err)
	}
	after := dependencies(t, filepath.Join(modules, "fixture"), "aws_subnet")
	if !slices.ContainsFunc(after, func(on string) bool { return strings.HasSuffix(on, ".aws_vpc_ipv4_cidr_block_association.secondary") }) {
		t.Errorf("the subnet depends on %v, want the range too", after)
	}
}

// dependencies returns the resources in the state on which a type of resource depends.
func dependencies(t *testing.T, folder, kind string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "terraform.tfstate"))
	var state struct {
		Resources []struct {
			Type      string
			Instances []struct{ Dependencies []string }
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, one := range state.Resources {
		for _, instance := range one.Instances {
			if one.Type == kind {
				out = append(out, instance.Dependencies...)
			}
		}
	}
	return out
}
