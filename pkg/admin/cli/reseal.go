package cli

import (
	"errors"
	"fmt"

	"github.com/nstance/nstance/pkg/secrets"
	"github.com/spf13/cobra"
)

func clusterSecretReseal(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reseal", Short: "Re-encrypt secrets with the current encryption key", Args: cobra.NoArgs,
		Long: "Re-encrypt all secrets encrypted with a key of --old-key, including the cluster's own, read each back, and repeat " +
			"until nothing uses an old key.\n\n" +
			"Every server must have both keys before, the new one as encryption_key. The command can be repeated after an error.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		if len(a.oldKeys) == 0 {
			return usagef("--old-key is required: pass the source of the old encryption key, such as env:OLD_KEY")
		}
		c, err := a.openCluster(cmd)
		if err != nil {
			return err
		}
		done, err := c.ResealSecrets(cmd.Context())
		if len(done) > 0 {
			err = errors.Join(printAll(cmd.OutOrStdout(), a.format, done, []column[secrets.Sealing]{
				{"SECRET", func(s secrets.Sealing) string { return s.Name }},
				{"STATE", func(s secrets.Sealing) string { return s.State }},
			}), err)
		}
		if err != nil {
			return fmt.Errorf("old keys may still be in use: %w", err)
		}
		fmt.Fprintln(cmd.ErrOrStderr(),
			"nothing uses the old key: remove it from old_encryption_keys of every shard, restart the servers, and delete it")
		return nil
	})
}
