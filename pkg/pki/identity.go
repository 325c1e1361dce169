package pki

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/nstance/nstance/pkg/fleet"
)

// Role is the role of a certificate's holder.
type Role string

// Roles, as in SPIFFE IDs.
const (
	RoleAgent    Role = "agent"
	RoleOperator Role = "operator"
	RoleServer   Role = "server"
)

var idPattern = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

// ReservedURI reports whether uri is under spiffe://{cluster}/, which no certificate from a
// user's template may contain. It errs on the safe side: spellings that differ only in case, a
// port, user info or a missing path are reserved too, and so is anything with scheme spiffe
// that can't be parsed.
func ReservedURI(cluster, uri string) bool {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(uri), ":")
	if !ok || !strings.EqualFold(scheme, "spiffe") {
		return false
	}
	u, err := url.Parse("spiffe:" + rest)
	return err != nil || u.Host == "" || strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), cluster)
}

func clientID(cluster, tenant string, role Role, id string) (*url.URL, error) {
	if err := checkName("tenant", tenant); err != nil {
		return nil, err
	}
	if !idPattern.MatchString(id) {
		return nil, fmt.Errorf("%s id %.80q: want 1 to 64 lowercase letters and digits", role, id)
	}
	return spiffeURL(cluster, tenant, string(role), id)
}

func serverID(cluster, shard string) (*url.URL, error) {
	if err := checkName("shard", shard); err != nil {
		return nil, err
	}
	return spiffeURL(cluster, string(RoleServer), shard)
}

func spiffeURL(cluster string, segments ...string) (*url.URL, error) {
	if err := checkName("cluster", cluster); err != nil {
		return nil, err
	}
	domain, err := spiffeid.TrustDomainFromString(cluster)
	if err != nil {
		return nil, fmt.Errorf("cluster %q as a trust domain: %w", cluster, err)
	}
	id, err := spiffeid.FromSegments(domain, segments...)
	if err != nil {
		return nil, fmt.Errorf("path %q of a SPIFFE id: %w", segments, err)
	}
	return id.URL(), nil
}

func checkName(field, s string) error {
	if err := fleet.CheckName(s); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}
