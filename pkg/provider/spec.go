package provider

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// Check returns all problems of s.
func (s Scope) Check() error {
	var errs []error
	for _, f := range []struct{ field, name string }{{"cluster id", s.ClusterID}, {"shard", s.Shard}} {
		if err := fleet.CheckName(f.name); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.field, err))
		}
	}
	return errors.Join(errs...)
}

// Owns reports whether tags are those of a VM of this scope. The instance ID does not matter: a
// VM with a missing or malformed ID is still listed.
func (s Scope) Owns(tags map[string]string) bool {
	return tags[TagManaged] == "true" && tags[TagClusterID] == s.ClusterID && tags[TagShard] == s.Shard
}

// TaggedID returns the instance ID in tags; empty if it is missing or malformed.
func TaggedID(tags map[string]string) fleet.InstanceID {
	id, _ := fleet.ParseID(tags[TagInstanceID])
	return id
}

// Check returns ErrInvalid, with the field, if spec can't be created in scope s: for a
// malformed ID, or tags of another scope or instance.
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

// Check returns ErrInvalid if r is empty.
func (r Ref) Check() error {
	if r.ID == "" && r.ProviderID == "" {
		return fmt.Errorf("%w: a reference needs an instance id or a provider id", ErrInvalid)
	}
	return nil
}

// Names reports whether r matches vm: every field of r that is set is equal.
func (r Ref) Names(vm VM) bool {
	return r != (Ref{}) && (r.ID == "" || r.ID == vm.ID) && (r.ProviderID == "" || r.ProviderID == vm.ProviderID)
}

// Sort orders vms as List does: by instance ID, then provider ID.
func Sort(vms []VM) { slices.SortFunc(vms, Compare) }

// SortLiving orders VMs of one instance: those that are alive first, gone ones last. A VM that has
// stopped must not hide another that runs.
func SortLiving(vms []VM) {
	slices.SortStableFunc(vms, func(a, b VM) int { return a.State.rank() - b.State.rank() })
}

// Compare compares two VMs by instance ID, then provider ID.
func Compare(a, b VM) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.ProviderID, b.ProviderID))
}
