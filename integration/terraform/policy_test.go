//go:build integration

package terraform_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// policy is one promise of the modules.
type policy struct {
	promise string
	of      string // the fixture that has to keep it
	kept    func(made) error
	broken  []mutation // each of which breaks it
}

// mutation is a change of a module that breaks a promise: a text in a file is replaced.
type mutation struct {
	file, text, by string
}

func policies() []policy {
	return slices.Concat(clusterPolicies(), accountPolicies(), networkPolicies(), serverPolicies(), addressPolicies(), configPolicies())
}

// TestPolicies: applied modules keep their promises, a second plan changes nothing, and
// nstance-server accepts the config.
func TestPolicies(t *testing.T) {
	offline(t)
	all, server := fixtures(), built(t)
	each(t, func(t *testing.T, p program) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				done, err := p.plan(t, here.copied(t), all[name])
				if err != nil {
					t.Fatal(err)
				}
				for _, change := range done.changes.Changes {
					// OpenTofu also lists ephemeral resources.
					if !slices.Equal(change.Change.Actions, []string{"no-op"}) && !slices.Equal(change.Change.Actions, []string{"open"}) {
						t.Errorf("once it is made, a plan would %v %s", change.Change.Actions, change.Address)
					}
				}
				for _, one := range policies() {
					if one.of != name {
						continue
					}
					if err := one.kept(done); err != nil {
						t.Errorf("%s: %v", one.promise, err)
					}
				}
				if len(done.all("aws_s3_object")) > 0 {
					accepted(t, server, done)
				}
			})
		}
	})
}

// TestMutations: a policy fails once its module is broken, so each of them can fail.
func TestMutations(t *testing.T) {
	offline(t)
	all, p := fixtures(), here.programs[0]
	for _, one := range policies() {
		if _, known := all[one.of]; !known || len(one.broken) == 0 {
			t.Errorf("%s: want a fixture, not %q, and a mutation", one.promise, one.of)
			continue
		}
		t.Run(one.promise, func(t *testing.T) {
			t.Parallel()
			for _, change := range one.broken {
				modules := here.copied(t)
				if err := change.make(modules); err != nil {
					t.Error(err)
					continue
				}
				done, err := p.apply(t, modules, all[one.of])
				if err != nil {
					t.Errorf("%s with %q: %v", change.file, change.by, err)
				} else if one.kept(done) == nil {
					t.Errorf("the promise is kept with %q in the place of %q in %s", change.by, change.text, change.file)
				}
			}
		})
	}
}

// make mutates a copy of the modules.
func (m mutation) make(modules string) error {
	name := filepath.Join(modules, "aws", m.file)
	before, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if strings.Count(string(before), m.text) != 1 {
		return errors.New(m.file + ": want once what is to be changed: " + m.text)
	}
	return os.WriteFile(name, []byte(strings.Replace(string(before), m.text, m.by, 1)), 0o600)
}
