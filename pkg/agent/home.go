package agent

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// home is the shard of the instance. The agent only talks to its servers.
type home struct{ cluster, shard string }

// claims are the claims of a registration nonce.
type claims struct {
	home     home
	instance string    // empty: none
	ends     time.Time // the exp claim; zero if missing or invalid
}

// readNonce reads the claims of a registration nonce without verifying it: the server does
// that, and a process that can write the nonce can write ca.crt too.
func readNonce(nonce string) (c claims, err error) {
	parts := strings.Split(nonce, ".")
	if len(parts) != 3 {
		return claims{}, fmt.Errorf("not a JWT (RFC 7519): want three parts separated by dots, got %d", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims{}, fmt.Errorf("not a JWT (RFC 7519): its claims are not base64url")
	}
	var said struct {
		Subject string  `json:"sub"`
		Cluster string  `json:"cluster_id"`
		Shard   string  `json:"shard"`
		Expires float64 `json:"exp"` // seconds
	}
	if err := json.Unmarshal(payload, &said); err != nil {
		return claims{}, fmt.Errorf("not a JWT (RFC 7519): its claims are not a JSON object " +
			"with the strings sub, cluster_id and shard, and a number exp")
	}
	if said.Expires > 0 && said.Expires <= maxUnix {
		c.ends = time.Unix(int64(said.Expires), 0)
	}
	c.instance = said.Subject
	c.home, err = newHome(said.Cluster, said.Shard)
	return c, err
}

const maxUnix = 253402300799 // the end of the year 9999

// parseHome parses the output of String.
func parseHome(id string) (home, error) {
	const rule = "want spiffe://{cluster}/server/{shard}"
	rest, ok := strings.CutPrefix(strings.TrimSpace(id), "spiffe://")
	if !ok {
		return home{}, fmt.Errorf("%.120q: %s", id, rule)
	}
	cluster, shard, ok := strings.Cut(rest, "/server/")
	if !ok {
		return home{}, fmt.Errorf("%.120q: %s", id, rule)
	}
	return newHome(cluster, shard)
}

func newHome(cluster, shard string) (home, error) {
	if err := fleet.CheckName(cluster); err != nil {
		return home{}, fmt.Errorf("cluster: %w", err)
	}
	if err := fleet.CheckName(shard); err != nil {
		return home{}, fmt.Errorf("shard: %w", err)
	}
	return home{cluster: cluster, shard: shard}, nil
}

// String returns the SPIFFE ID of the shard's servers.
func (h home) String() string { return "spiffe://" + h.cluster + "/server/" + h.shard }
