package nonce

import (
	"fmt"
	"regexp"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Kind is the kind of client that a nonce is for.
type Kind string

// Kinds, as in the claim.
const (
	KindAgent    Kind = "agent"
	KindOperator Kind = "operator"
)

// Leeway is the tolerated difference between the clocks of the servers that create and check a
// nonce.
const Leeway = 60 * time.Second

// Claims are the claims of a nonce. Times are whole seconds.
type Claims struct {
	Kind Kind
	// Subject is the instance ID in an agent's nonce, and the cluster ID in an operator's.
	Subject   string
	ClusterID string
	Tenant    string
	// Shard is the shard that created an agent's nonce, and the only one that accepts it. It
	// is empty in an operator's nonce that every shard accepts.
	Shard string
	// ConfigHash is the hash of the configuration that an agent's instance was created from.
	ConfigHash string
	// ID is the unique ID of the nonce (jti). In an operator's nonce it becomes the operator's
	// ID.
	ID        string
	IssuedAt  time.Time
	NotBefore time.Time
	ExpiresAt time.Time
}

var (
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	hashPattern = regexp.MustCompile(`^[A-Za-z0-9:_-]{0,128}$`)
)

// check checks the form of the claims, independently of what is wanted.
func (c Claims) check() error {
	if err := c.checkSubject(); err != nil {
		return err
	}
	for _, n := range []struct{ field, value string }{{"cluster_id", c.ClusterID}, {"tenant", c.Tenant}} {
		if err := fleet.CheckName(n.value); err != nil {
			return fmt.Errorf("%s: %w", n.field, err)
		}
	}
	if !idPattern.MatchString(c.ID) {
		return fmt.Errorf("jti %.80q: want 1 to 128 letters, digits, hyphens and underscores", c.ID)
	}
	if !hashPattern.MatchString(c.ConfigHash) {
		return fmt.Errorf("config_hash %.80q: want at most 128 letters, digits, colons, hyphens and underscores", c.ConfigHash)
	}
	if c.IssuedAt.Unix() <= 0 || c.NotBefore.Unix() <= 0 || !c.ExpiresAt.After(c.NotBefore) || c.ExpiresAt.Year() > 9999 {
		return fmt.Errorf("iat %d, nbf %d, exp %d: want all three, and exp after nbf", c.IssuedAt.Unix(), c.NotBefore.Unix(), c.ExpiresAt.Unix())
	}
	return nil
}

func (c Claims) checkSubject() error {
	switch c.Kind {
	case KindAgent:
		if err := fleet.CheckName(c.Shard); err != nil {
			return fmt.Errorf("shard: %w", err)
		}
		if !idPattern.MatchString(c.Subject) {
			return fmt.Errorf("sub %.80q: want an instance id", c.Subject)
		}
	case KindOperator:
		if c.Shard != "" {
			if err := fleet.CheckName(c.Shard); err != nil {
				return fmt.Errorf("shard: %w", err)
			}
		}
		if c.Subject != c.ClusterID {
			return fmt.Errorf("sub %.80q: want the cluster id %q", c.Subject, c.ClusterID)
		}
	default:
		return fmt.Errorf("kind %.80q: want %s or %s", c.Kind, KindAgent, KindOperator)
	}
	return nil
}
