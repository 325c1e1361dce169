package cli

import (
	"fmt"
	"os"

	"github.com/nstance/nstance/pkg/admin"
	shardconfig "github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/spf13/cobra"
)

func clusterConfig(a *app) *cobra.Command {
	return branch(&cobra.Command{Use: "config", Short: "Static config of shards, in the storage: put"}, clusterConfigPut(a))
}

func clusterConfigPut(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "put SHARD FILE", Short: "Check a shard's config and put it into the storage", Args: cobra.ExactArgs(2),
		Long: "Check a shard's config, as `config validate` does, and put it into the storage in place of the one that is there.\n\n" +
			"No server is needed. One that runs reads the new text after `config refresh`.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		shard, path := args[0], args[1]
		if err := fleet.CheckName(shard); err != nil {
			return usagef("SHARD: %w", err)
		}
		if err := a.needBucket(); err != nil {
			return err
		}
		text, err := readConfig(path)
		if err != nil {
			return err
		}
		if err := reach(a, cmd); err != nil {
			return err
		}
		changed, err := admin.PutConfig(cmd.Context(), a.storage, a.env.Getenv, shard, text)
		if err != nil {
			return err
		}
		said := fmt.Sprintf("the config of shard %s is in place (%d bytes)", shard, len(text))
		if !changed {
			said = fmt.Sprintf("the config of shard %s is in place already", shard)
		}
		return a.done(cmd.OutOrStdout(), said, map[string]any{"shard": shard, "bytes": len(text), "changed": changed})
	})
}

// readConfig reads a shard's config and checks it.
func readConfig(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usagef("read config: %w", err)
	}
	if _, err := shardconfig.Parse(text); err != nil {
		return nil, fmt.Errorf("%s is not valid:\n%w", path, err)
	}
	return text, nil
}
