package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
)

// target is which shards the flags name.
type target struct {
	servers string
	shard   string
	given   bool // shard: by the flag, rather than by the environment
	all     bool
}

// shardFlags adds the flags of commands that ask shards.
func (a *app) shardFlags(cmd *cobra.Command) *cobra.Command {
	f := cmd.PersistentFlags()
	f.StringVar(&a.target.servers, "servers", a.preset("SERVERS", ""), "operator addresses: shard=host:port[;host:port],…")
	f.StringVar(&a.target.shard, "shard", a.preset("SHARD", ""), "ask only this shard")
	f.BoolVar(&a.target.all, "all-shards", false, "ask all shards (the default for what only reads)")
	f.StringVar(&a.identityDir, "identity-dir", a.preset("IDENTITY_DIR", "."), "folder of ca.crt, identity.crt and identity.key")
	return cmd
}

// read returns the shards to ask.
func (t *target) read() ([]client.Shard, error) {
	name := t.shard
	if t.all {
		if t.given {
			return nil, usagef("--shard and --all-shards exclude each other")
		}
		name = ""
	}
	all, err := client.ParseServers(t.servers)
	if err != nil {
		return nil, usagef("--%w", err)
	}
	picked, err := client.Select(all, name)
	if err != nil {
		return nil, usagef("--%w", err)
	}
	return picked, nil
}

// every returns all shards there are, unless --shard says another thing: what
// NSTANCE_ADMIN_SHARD names is where one usually works.
func (t *target) every() ([]client.Shard, error) {
	if !t.given {
		t.all = true
	}
	return t.read()
}

// write returns the shards that a change is for: one named, the only one
// there is, or all when that was asked for.
func (t *target) write() ([]client.Shard, error) {
	picked, err := t.read()
	if err != nil {
		return nil, err
	}
	if len(picked) > 1 && !t.all {
		return nil, usagef("there are %d shards: say --shard NAME or --all-shards", len(picked))
	}
	return picked, nil
}

// list makes a command that shows as a table what the shards answer.
func list[T any](
	a *app, cmd *cobra.Command, columns func() []column[T], ask func(*admin.Client, context.Context, []client.Shard) ([]T, error),
) *cobra.Command {
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		client, shards, err := a.ask(a.target.read)
		if err != nil {
			return err
		}
		rows, err := ask(client, cmd.Context(), shards)
		return errors.Join(printAll(cmd.OutOrStdout(), a.format, rows, columns()), err)
	})
}

// ask resolves the shards and connects.
func (a *app) ask(pick func() ([]client.Shard, error)) (*admin.Client, []client.Shard, error) {
	shards, err := pick()
	if err != nil {
		return nil, nil, err
	}
	identity, err := admin.LoadIdentity(a.identityDir, a.env.Now, a.env.Random)
	if err != nil {
		return nil, nil, err
	}
	a.client = admin.NewClient(admin.Config{
		Identity: identity, UserAgent: "nstance-admin/" + a.env.Version, Random: rand.Float64, Waiting: newWaits(a.env.Stderr).set,
		Warn: func(err error) { fmt.Fprintf(a.env.Stderr, "warning: %v\n", err) },
	})
	return a.client, shards, nil
}
