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

// target is the set of shards that the flags select.
type target struct {
	servers string
	shard   string
	given   bool // shard was set by the flag, not by the environment
	all     bool
}

// shardFlags adds the flags of commands that call shards.
func (a *app) shardFlags(cmd *cobra.Command) *cobra.Command {
	f := cmd.PersistentFlags()
	f.StringVar(&a.target.servers, "servers", a.preset("SERVERS", ""), "operator addresses: shard=host:port[;host:port],…")
	f.StringVar(&a.target.shard, "shard", a.preset("SHARD", ""), "call only this shard")
	f.BoolVar(&a.target.all, "all-shards", false, "call all shards (the default of read-only commands)")
	f.StringVar(&a.identityDir, "identity-dir", a.preset("IDENTITY_DIR", "."), "folder of ca.crt, identity.crt and identity.key")
	return cmd
}

// read returns the selected shards.
func (t *target) read() ([]client.Shard, error) {
	name := t.shard
	if t.all {
		if t.given {
			return nil, usagef("pass either --shard or --all-shards, not both")
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

// every returns all shards unless --shard is given. It ignores NSTANCE_ADMIN_SHARD, which is
// only a default.
func (t *target) every() ([]client.Shard, error) {
	if !t.given {
		t.all = true
	}
	return t.read()
}

// write returns the shards to change: the one named, the only one there is, or all with
// --all-shards.
func (t *target) write() ([]client.Shard, error) {
	picked, err := t.read()
	if err != nil {
		return nil, err
	}
	if len(picked) > 1 && !t.all {
		return nil, usagef("there are %d shards: pass --shard NAME or --all-shards", len(picked))
	}
	return picked, nil
}

// list makes a command that prints the shards' answers as a table.
func list[T any](
	a *app, cmd *cobra.Command, columns func() []column[T], ask func(*admin.Client, context.Context, []client.Shard) ([]T, error),
) *cobra.Command {
	return show(a, cmd, func(cmd *cobra.Command, _ []string) error {
		client, shards, err := a.connect(a.target.read)
		if err != nil {
			return err
		}
		rows, err := ask(client, cmd.Context(), shards)
		return errors.Join(printAll(cmd.OutOrStdout(), a.format, rows, columns()), err)
	})
}

// connect resolves the shards and connects.
func (a *app) connect(pick func() ([]client.Shard, error)) (*admin.Client, []client.Shard, error) {
	shards, err := pick()
	if err == nil {
		err = needPath("--identity-dir", a.identityDir)
	}
	if err != nil {
		return nil, nil, err
	}
	identity, err := admin.LoadIdentity(a.identityDir, a.env.Now, a.env.Random)
	if err != nil {
		return nil, nil, err
	}
	a.client = admin.NewClient(admin.Config{
		Identity: identity, UserAgent: "nstance-admin/" + a.env.Version, Random: rand.Float64, Waiting: newWaits(a.env.Stderr).set,
		Patience: a.patience,
		Warn:     func(err error) { fmt.Fprintf(a.env.Stderr, "warning: %v\n", err) },
	})
	return a.client, shards, nil
}
