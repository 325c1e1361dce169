package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
)

// Shard is a shard and the operator addresses of its servers.
type Shard struct {
	ID    string
	Addrs []string // host:port
}

// ParseServers parses shard=host:port[;host:port],… where a shard's further addresses are
// those of its standbys. The result is sorted by ID.
func ParseServers(s string) ([]Shard, error) {
	const form = `want shard=host:port[;host:port],… such as "us-west-2a=10.0.0.1:8993"`
	if strings.TrimSpace(s) == "" {
		return nil, fmt.Errorf("servers: none given: %s", form)
	}
	var shards []Shard
	for part := range strings.SplitSeq(s, ",") {
		if strings.TrimSpace(part) == "" {
			return nil, fmt.Errorf("servers: there is nothing before or after a comma in %.120q: remove the comma, or add a shard", s)
		}
		id, addrs, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return nil, fmt.Errorf("servers: %.120q has no =: %s", part, form)
		}
		if err := fleet.CheckName(id); err != nil {
			return nil, fmt.Errorf("servers: shard: %w", err)
		}
		if slices.ContainsFunc(shards, func(s Shard) bool { return s.ID == id }) {
			return nil, fmt.Errorf("servers: shard %q is given twice: separate its addresses with a semicolon", id)
		}
		list, err := rpc.ParseAddrs("servers: shard "+id, strings.ReplaceAll(addrs, ";", ","))
		if err != nil {
			return nil, err
		}
		shards = append(shards, Shard{ID: id, Addrs: list})
	}
	slices.SortFunc(shards, func(a, b Shard) int { return strings.Compare(a.ID, b.ID) })
	return shards, nil
}

// Select returns the named shard, or all if name is empty.
func Select(shards []Shard, name string) ([]Shard, error) {
	if name == "" {
		return shards, nil
	}
	var have []string
	for _, s := range shards {
		if s.ID == name {
			return []Shard{s}, nil
		}
		have = append(have, s.ID)
	}
	return nil, fmt.Errorf("shard: no such shard %q (have: %s)", name, strings.Join(have, ", "))
}
