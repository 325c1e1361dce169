package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// upTimeout bounds the way from nothing to all groups at size.
const upTimeout = 60 * time.Second

// bringUp starts everything in order and returns when all groups are at size.
func (s *Stack) bringUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	if err := s.components[0].start(ctx); err != nil {
		return err
	}
	if err := s.waitHealthy(ctx, s.components[0]); err != nil {
		return err
	}
	if err := placeConfigs(s.cfg); err != nil {
		return err
	}
	for _, c := range s.components[1:s.shardCount] {
		if err := c.start(ctx); err != nil {
			return err
		}
	}
	for _, c := range s.components[1:s.shardCount] {
		if err := s.waitHealthy(ctx, c); err != nil {
			return err
		}
	}
	if err := writeEnv(s.cfg); err != nil {
		return err
	}
	if err := s.registerAdmin(ctx); err != nil {
		return err
	}
	if err := s.waitAtSize(ctx); err != nil {
		return err
	}
	s.markReady()
	fmt.Fprintln(s.cfg.Out, s.summary())
	return nil
}

func (s *Stack) waitHealthy(ctx context.Context, c *component) error {
	return poll(ctx, func() (bool, string) {
		st := c.status(ctx)
		return st.Healthy, fmt.Sprintf("%s is not healthy: %s", st.Name, st.Detail)
	})
}

// poll asks until the answer is yes; when ctx ends first, the last reason is the
// error.
func poll(ctx context.Context, ask func() (done bool, reason string)) error {
	reason := "nothing was asked yet"
	for {
		done, why := ask()
		if done {
			return nil
		}
		if ctx.Err() == nil {
			reason = why
		}
		if retry.Wait(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("%s (%w)", reason, ctx.Err())
		}
	}
}

type groupLine struct {
	Shard      string `json:"shard"`
	Key        string `json:"key"`
	Size       int    `json:"size"`
	ActualSize int    `json:"actual_size"`
	Conditions []struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"conditions"`
}

// groups are those of every shard.
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

// waitAtSize waits until every group of every shard has as many running
// instances as it wants.
func (s *Stack) waitAtSize(ctx context.Context) error {
	return poll(ctx, func() (bool, string) {
		groups, err := s.groups(ctx)
		if err != nil {
			return false, err.Error()
		}
		var short []string
		for _, g := range groups {
			if g.ActualSize != g.Size {
				short = append(short, fmt.Sprintf("%s of %s has %d of %d", g.Key, g.Shard, g.ActualSize, g.Size))
				for _, c := range g.Conditions {
					short = append(short, c.Type+": "+c.Message)
				}
			}
		}
		return len(groups) > 0 && len(short) == 0, "groups are not at size: " + strings.Join(short, "; ")
	})
}

func (s *Stack) summary() string {
	return fmt.Sprintf(`
The development stack is up: every group is at size (agents: %s).
  object storage   http://%s/%s
  shard dev-1      http://127.0.0.1:8990/health
  shard dev-2      http://127.0.0.1:9000/health
Try:
  . %s && %s group list
`, s.cfg.Provider, storeAddr, bucket, s.envFile(), fromHere(filepath.Join(s.cfg.Bin, "nstance-admin")))
}

// envFile is dev.env, as a shell here reaches it.
func (s *Stack) envFile() string { return fromHere(filepath.Join(s.cfg.Temp, "dev.env")) }

// fromHere is the path that a shell here would use: what lies elsewhere keeps its own.
func fromHere(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	rel, err := filepath.Rel(wd, path)
	if err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return rel
}
