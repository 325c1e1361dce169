package shardtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// The shard that is simulated.
const (
	clusterID     = "sim"
	shardID       = "dev-1"
	encryptionKey = "thisisa32byteencryptionkey123456"
)

// Settings are the variable parts of the shard's static config.
type Settings struct {
	Web, DB      int // sizes of the two static groups
	InstanceType string
	Var          int // a variable that is not part of the Infra hash
	DrainTimeout time.Duration
	Broken       bool   // makes the config invalid
	Without      string // omits this one of the two groups
	Renamed      bool   // renames the group in Without instead
	Listed       bool   // lists the group in Without as removed
	Unset        string // omits the size of this one of the two groups
	Spare        int    // size of a third group, of which the provider makes no machine; 0: there is none
	Pacing
}

// Pacing limits creates and rotations.
type Pacing struct {
	Settle     time.Duration
	BackoffMax time.Duration
	Surge      fleet.Surge // of a group
	ShardSurge fleet.Surge
}

// DefaultSettings are the initial settings of a simulation.
func DefaultSettings() Settings {
	return Settings{Web: 2, DB: 1, InstanceType: "small", Var: 1, DrainTimeout: time.Minute, Pacing: DefaultPacing()}
}

// DefaultPacing is the pacing of a config that does not set it.
func DefaultPacing() Pacing {
	return Pacing{Settle: 2 * time.Minute, BackoffMax: 5 * time.Minute, Surge: fleet.Surge{Count: 1}, ShardSurge: fleet.Surge{Percent: 10}}
}

// Text returns the config as stored.
func (s Settings) Text() string {
	groups := map[string]int{"web": s.Web, "db": s.DB}
	if size, is := groups[s.Without]; is {
		delete(groups, s.Without)
		if s.Renamed {
			groups[s.Without+"2"] = size
		}
	}
	if s.Spare > 0 {
		groups["spare"] = s.Spare
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		size := fmt.Sprintf(`, "size": %d`, groups[name])
		switch name {
		case s.Unset:
			size = ""
		case "spare":
			size += fmt.Sprintf(`, "instance_type": %q`, unknownType)
		}
		lines = append(lines, fmt.Sprintf(`%q: { "template": "knd"%s }`, name, size))
	}
	pool := "workers"
	if s.Broken {
		pool = "nowhere"
	}
	return strings.NewReplacer(
		"GROUPS", strings.Join(lines, ", "), "REMOVED", s.removed(), "TYPE", s.InstanceType, "VAR", fmt.Sprint(s.Var),
		"DRAIN", s.DrainTimeout.String(), "POOL", pool,
		"SETTLE", s.Settle.String(), "BACKOFF", s.BackoffMax.String(), "MINE", s.Surge.String(), "ALL", s.ShardSurge.String(),
	).Replace(`{
  "cluster": { "id": "sim", "secrets": { "encryption_key": { "provider": "env", "source": "NSTANCE_ENCRYPTION_KEY" } } },
  "server": {
    "provider": { "kind": "fake", "region": "r", "zone": "z" },
    "bind": {
      "health_addr": "0.0.0.0:8990", "election_addr": "0.0.0.0:8991", "registration_addr": "0.0.0.0:8992",
      "operator_addr": "0.0.0.0:8993", "agent_addr": "0.0.0.0:8994"
    },
    "leader_election": { "renew_interval": "10s", "lease_duration": "30s", "fence_window": "1s" },
    "shutdown_timeout": "5s",
    "subnet_pools": { "workers": { "subnets": ["a", "b"], "tenants": ["*"] } },
    "default_drain_timeout": "DRAIN",
    "create_backoff": { "settle": "SETTLE", "max": "BACKOFF" },
    "rotation": { "max_surge": "ALL" },
    "health": { "report_interval": "1m", "missed_reports": 3, "shutdown_grace": "30s" },
    "garbage_collection": { "interval": "2m", "registration_timeout": "5m", "deleted_record_retention": "10m" },
  },
  "tenants": { "prod": {} },
  "templates": { "knd": { "tenants": ["*"], "kind": "knd", "arch": "amd64", "instance_type": "TYPE", "subnet_pool": "POOL",
    "vars": { "n": VAR }, "rotation": { "max_surge": "MINE" } } },
  "groups": { "default": { GROUPS } },
  "removed": [REMOVED],
}`)
}

// removed returns the names of the groups that the config lists as removed.
func (s Settings) removed() string {
	if s.Listed && s.Without != "" {
		return fmt.Sprintf("%q", defaultGroup(s.Without))
	}
	return ""
}

// whole makes the config have both groups, their sizes, and nothing else.
func (s *Settings) whole() {
	s.Without, s.Renamed, s.Listed, s.Unset, s.Spare = "", false, false, "", 0
}

func configKey() string { return "config/" + shardID + ".jsonc" }

func getenv(name string) string {
	if name == "NSTANCE_ENCRYPTION_KEY" {
		return encryptionKey
	}
	return ""
}
