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
	return branch(&cobra.Command{Use: "config", Short: "Static config of shards in the storage: put"}, clusterConfigPut(a))
}

func clusterConfigPut(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "put SHARD FILE", Short: "Validate a shard's config and store it", Args: cobra.ExactArgs(2),
		Long: "Validate a shard's config, as `config validate --offline` does, and store it, replacing the current one.\n\n" +
			"No server is needed. Running servers read it after `config refresh`.",
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
		said := fmt.Sprintf("stored the config of shard %s (%d bytes)", shard, len(text))
		if !changed {
			said = fmt.Sprintf("the config of shard %s is already stored", shard)
		}
		return a.done(cmd.OutOrStdout(), said, map[string]any{"shard": shard, "bytes": len(text), "changed": changed})
	})
}

// readConfig reads and validates a shard's config.
func readConfig(path string) ([]byte, error) {
	if err := needPath("FILE", path); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usagef("read the config: %w", err)
	}
	if _, err := shardconfig.ParseWith(text, shardconfig.AnyProvider()); err != nil {
		return nil, fmt.Errorf("%s is not valid:\n%w", path, shardconfig.LocateError(text, err))
	}
	return text, nil
}
