package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// changedGrace is how long the start waits for groups that are not as the static config has them.
const changedGrace = 10 * time.Second

// groupLine is what `group list` says of a group.
type groupLine struct {
	Shard      string `json:"shard"`
	Key        string `json:"key"`
	Size       int    `json:"size"`
	ActualSize int    `json:"actual_size"`
	IsStatic   bool   `json:"is_static"`
	StaticSize int    `json:"static_size"`
	Conditions []struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"conditions"`
}

// short describes what a group lacks; empty: it is at size.
func (g groupLine) short() string {
	if g.ActualSize == g.Size {
		return ""
	}
	said := []string{fmt.Sprintf("%s of %s has %d of %d", g.Key, g.Shard, g.ActualSize, g.Size)}
	for _, c := range g.Conditions {
		said = append(said, c.Type+": "+c.Message)
	}
	return strings.Join(said, "; ")
}

// shortGroups describes the groups that are not at size: those of the static config, without which
// the stack is not up, and those that were created or scaled since, which may be impossible.
func shortGroups(all []groupLine) (static, changed []string) {
	for _, g := range all {
		switch said := g.short(); {
		case said == "":
		case g.IsStatic && g.Size == g.StaticSize:
			static = append(static, said)
		default:
			changed = append(changed, said)
		}
	}
	return static, changed
}

// groups returns the groups of all shards.
func (s *Stack) groups(ctx context.Context) (all []groupLine, err error) {
	out, err := s.admin(ctx, "group", "list", "--all-shards", "--output", "json")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("group list: %w", err)
	}
	return all, nil
}

// waitAtSize waits until the groups of the static config are at size, then for a while for those
// that were changed since; short describes the latter.
func (s *Stack) waitAtSize(ctx context.Context) (short []string, err error) {
	check := func(ctx context.Context, of func(static, changed []string) []string) error {
		return poll(ctx, func() (bool, string) {
			all, err := s.groups(ctx)
			if err != nil {
				return false, err.Error()
			}
			static, changed := shortGroups(all)
			short = of(static, changed)
			return len(all) > 0 && len(short) == 0, "groups are not at size: " + strings.Join(short, "; ")
		})
	}
	if err := check(ctx, func(static, _ []string) []string { return static }); err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, changedGrace)
	defer cancel()
	err = check(within, func(_, changed []string) []string { return changed })
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return nil, err
	}
	return short, nil
}
