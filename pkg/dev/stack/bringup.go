package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// upTimeout bounds the time until all groups are at size.
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
	if err := writeConfigs(s.cfg); err != nil {
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
	if err := errors.Join(writeEnv(s.cfg), writePrometheus(s.cfg)); err != nil {
		return err
	}
	if err := s.registerAdmin(ctx); err != nil {
		return err
	}
	short, err := s.waitAtSize(ctx)
	if err != nil {
		return err
	}
	s.markReady(short)
	fmt.Fprintln(s.cfg.Out, s.summary(short))
	return nil
}

func (s *Stack) waitHealthy(ctx context.Context, c *component) error {
	return poll(ctx, func() (bool, string) {
		st := c.status(ctx)
		return st.Healthy, fmt.Sprintf("%s is not healthy: %s", st.Name, st.Detail)
	})
}

// poll calls check until it is done; if ctx ends first, the last reason is the error.
func poll(ctx context.Context, check func() (done bool, reason string)) error {
	reason := "nothing was checked yet"
	for {
		done, why := check()
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

// summary describes the stack that is up; short names groups that are not at size.
func (s *Stack) summary(short []string) string {
	state := "every group is at size"
	if len(short) > 0 {
		state = "except for what was changed since, every group is at size"
	}
	var shards strings.Builder
	for _, one := range s.cfg.shards() {
		fmt.Fprintf(&shards, "  shard %-10s http://%s/health\n", one.id, one.addr(healthPort))
	}
	fmt.Fprintf(&shards, "  metrics          http://%s/metrics; for Prometheus: %s\n",
		s.cfg.shards()[0].addr(metricsPort), relativePath(s.cfg.prometheusFile()))
	for _, one := range short {
		fmt.Fprintf(&shards, "  not at size:     %s\n", one)
	}
	return fmt.Sprintf(`
The development stack is up: %s (agents: %s).
  object storage   http://%s/%s
%sTry:
  . %s && %s group list
`, state, s.cfg.Provider, s.cfg.storeAddr(), bucket, &shards, s.envFile(), relativePath(filepath.Join(s.cfg.Bin, "nstance-admin")))
}

// envFile returns the path of dev.env for a shell in this directory.
func (s *Stack) envFile() string { return relativePath(filepath.Join(s.cfg.Temp, "dev.env")) }

// relativePath returns the path relative to this directory, if it is below it.
func relativePath(path string) string {
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
