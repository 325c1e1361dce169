package operators

import (
	"fmt"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// MaxAcceptedRemovals is the maximum number of removals that one refresh can accept.
const MaxAcceptedRemovals = 10000

// maxRemovalIDs is how many instances of one group are listed.
const maxRemovalIDs = 10

// acceptedRemovals parses the removals that a request accepts.
func acceptedRemovals(names []string) ([]fleet.GroupKey, error) {
	if len(names) > MaxAcceptedRemovals {
		return nil, rpc.InvalidField("accept_removals", fmt.Sprintf("%d names: at most %d are allowed", len(names), MaxAcceptedRemovals))
	}
	var keys []fleet.GroupKey
	for n, name := range names {
		key, err := fleet.ParseGroupKey(name)
		if err != nil {
			return nil, rpc.InvalidField(fmt.Sprintf("accept_removals[%d]", n), err.Error())
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func (r Removal) firstIDs() (ids []string) {
	for _, id := range r.Instances[:min(len(r.Instances), maxRemovalIDs)] {
		ids = append(ids, string(id))
	}
	return ids
}

// goes returns how many instances are removed.
func (r Removal) goes() int { return max(0, len(r.Instances)-r.Keeps) }

func (r Removal) message() *nstancev1.GroupRemoval {
	return &nstancev1.GroupRemoval{
		Tenant: r.Key.Tenant, Group: r.Key.Name, Emptied: r.Emptied, SizeUnset: r.SizeUnset,
		Instances: int32(r.goes()), InstanceIds: r.firstIDs(),
	}
}

// Failure returns the failed precondition for a removal that was not accepted.
func (r Removal) Failure() rpc.Failure {
	kind, what := rpc.GroupRemoved, "removed"
	switch {
	case r.Emptied:
		kind, what = rpc.GroupEmptied, "set to size 0"
	case r.SizeUnset:
		kind, what = rpc.GroupSizeUnset, fmt.Sprintf("no size is set any more, in the group or its template, so that it would be %d", r.Keeps)
	}
	switch {
	case len(r.Instances) == 0:
		return rpc.Failure{Type: kind, Subject: r.Key.String(), Description: what + "; not known yet whether it has instances"}
	case r.goes() == 0:
		return rpc.Failure{Type: kind, Subject: r.Key.String(), Description: what + "; not known yet whether it has more instances"}
	}
	noun := "instances"
	if r.goes() == 1 {
		noun = "instance"
	}
	if r.Keeps > 0 {
		noun += fmt.Sprintf(" of these %d", len(r.Instances))
	}
	text := fmt.Sprintf("%s, which deletes %d %s: %s", what, r.goes(), noun, strings.Join(r.firstIDs(), ", "))
	if more := len(r.Instances) - maxRemovalIDs; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return rpc.Failure{Type: kind, Subject: r.Key.String(), Description: text}
}
