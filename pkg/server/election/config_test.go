package election_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/server/election"
)

func TestConfigValidate(t *testing.T) {
	good := func() election.Config {
		return election.Config{
			Store: mem.New(mem.Config{}), Key: key, Holder: "a", Timing: defaults,
			FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
		}
	}
	if _, err := election.New(good()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		says  string
		spoil func(*election.Config)
	}{
		{"Store", func(c *election.Config) { c.Store = nil }},
		{"Key", func(c *election.Config) { c.Key = "" }},
		{"Holder", func(c *election.Config) { c.Holder = "" }},
		{"FirstEpoch", func(c *election.Config) { c.FirstEpoch = nil }},
		{"renew_interval", func(c *election.Config) { c.Timing.RenewInterval = 0 }},
		{"lease_duration", func(c *election.Config) { c.Timing.LeaseDuration = 19 * time.Second }},
		{"lease_duration", func(c *election.Config) { c.Timing.LeaseDuration = 2 * time.Hour }},
		{"fence_window", func(c *election.Config) { c.Timing.FenceWindow = 0 }},
		{"fence_window", func(c *election.Config) { c.Timing.FenceWindow = 7500 * time.Millisecond }},
	} {
		config := good()
		c.spoil(&config)
		if _, err := election.New(config); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error is %v, want one that says %q", err, c.says)
		}
	}
}

func TestRunOnce(t *testing.T) {
	e, err := election.New(election.Config{
		Store: mem.New(mem.Config{}), Key: key, Holder: "a", Timing: defaults,
		FirstEpoch: func(context.Context) (uint64, error) { return 1, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	lead := func(context.Context, *election.Term) error { return nil }
	if err := e.Run(ctx, lead); err != nil {
		t.Error(err)
	}
	if err := e.Run(ctx, lead); err == nil {
		t.Error("a second run is allowed")
	}
}
