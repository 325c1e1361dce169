package provider

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// Check reports everything that is wrong with s.
func (s Scope) Check() error {
	var errs []error
	for _, f := range []struct{ field, name string }{{"cluster id", s.ClusterID}, {"shard", s.Shard}} {
		if err := fleet.CheckName(f.name); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.field, err))
		}
	}
	return errors.Join(errs...)
}

// Owns reports whether tags mark a VM of this scope. The instance id is no part
// of it: a VM of ours whose id is missing or malformed is still ours to list.
func (s Scope) Owns(tags map[string]string) bool {
	return tags[TagManaged] == "true" && tags[TagClusterID] == s.ClusterID && tags[TagShard] == s.Shard
}

// TaggedID returns the instance id that tags carry, empty when it is missing or
// malformed.
func TaggedID(tags map[string]string) fleet.InstanceID {
	id, _ := fleet.ParseID(tags[TagInstanceID])
	return id
}

// Check reports why spec can't be created in scope s, as ErrInvalid naming the
// field: a malformed id, or tags that would hide the VM from s or give it to
// another instance.
func (spec Spec) Check(s Scope) error {
	if _, err := fleet.ParseID(string(spec.ID)); err != nil {
		return fmt.Errorf("%w: id: %w", ErrInvalid, err)
	}
	for key, want := range map[string]string{
		TagManaged: "true", TagClusterID: s.ClusterID, TagShard: s.Shard, TagInstanceID: string(spec.ID),
	} {
		if got := spec.Tags[key]; got != want {
			return fmt.Errorf("%w: tags[%s] is %.80q: want %q", ErrInvalid, key, got, want)
		}
	}
	return nil
}

// Check reports, as ErrInvalid, that r names nothing at all.
func (r Ref) Check() error {
	if r.ID == "" && r.ProviderID == "" {
		return fmt.Errorf("%w: a reference needs an instance id or a provider id", ErrInvalid)
	}
	return nil
}

// Names reports whether r names vm: every half of r that is set agrees.
func (r Ref) Names(vm VM) bool {
	return r != (Ref{}) && (r.ID == "" || r.ID == vm.ID) && (r.ProviderID == "" || r.ProviderID == vm.ProviderID)
}

// Sort orders vms as List returns them: by instance id, then provider id.
func Sort(vms []VM) { slices.SortFunc(vms, Compare) }

// Compare orders two VMs by instance id, then provider id.
func Compare(a, b VM) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.ProviderID, b.ProviderID))
}
