package fleet

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// MaxNameLength is the maximum length of cluster, shard, tenant, group and subnet pool IDs, in
// characters.
const MaxNameLength = 32

// DefaultTenant is the tenant that every shard has implicitly.
const DefaultTenant = "default"

var namePattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// CheckName returns an error if s is not a valid cluster, shard, tenant, group or subnet
// pool id. The error states the value and the rule; the caller adds the field's path.
func CheckName(s string) error {
	if len(s) > MaxNameLength || !namePattern.MatchString(s) {
		return fmt.Errorf("%.80q is not a valid id: want lowercase letters, digits and single inner hyphens, at most %d characters",
			s, MaxNameLength)
	}
	return nil
}

// GroupKey identifies a group within a shard. Group names are unique per tenant.
type GroupKey struct {
	Tenant string `json:"tenant"`
	Name   string `json:"name"`
}

func (k GroupKey) String() string { return k.Tenant + "/" + k.Name }

// ParseGroupKey is the inverse of GroupKey.String. The error states the value and the
// expected form.
func ParseGroupKey(s string) (GroupKey, error) {
	tenant, name, ok := strings.Cut(s, "/")
	if !ok {
		return GroupKey{}, fmt.Errorf("%.80q is not a group: want tenant/group, such as %s/web", s, DefaultTenant)
	}
	for _, part := range []string{tenant, name} {
		if err := CheckName(part); err != nil {
			return GroupKey{}, fmt.Errorf("%.80q is not a group: want tenant/group: %w", s, err)
		}
	}
	return GroupKey{Tenant: tenant, Name: name}, nil
}

// Compare compares keys by tenant, then name, as cmp.Compare does.
func (k GroupKey) Compare(o GroupKey) int {
	return cmp.Or(cmp.Compare(k.Tenant, o.Tenant), cmp.Compare(k.Name, o.Name))
}
