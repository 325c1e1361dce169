package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/secrets"
	"github.com/spf13/cobra"
)

func clusterSecret(a *app) *cobra.Command {
	return branch(&cobra.Command{Use: "secret", Short: "Secrets for instance files, and their encryption: put, reseal"},
		clusterSecretPut(a), clusterSecretReseal(a))
}

func clusterSecretPut(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "put NAME FILE", Short: "Store a secret from a file, or from standard input with -", Args: cobra.ExactArgs(2),
		Long: "Store a secret, encrypted with the cluster's encryption key, replacing an existing one of that name.\n\n" +
			"Files of kind secret deliver it to instances. Running instances get the new value after `config refresh`.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		value, err := readValue(cmd.InOrStdin(), args[1])
		if err != nil {
			return err
		}
		if err := admin.CheckSecret(args[0], value); err != nil {
			return usageError{err}
		}
		c, err := a.openCluster(cmd)
		if err != nil {
			return err
		}
		if err := c.PutSecret(cmd.Context(), args[0], value); err != nil {
			return err
		}
		return a.done(cmd.OutOrStdout(), fmt.Sprintf("stored secret %s (%d bytes)", args[0], len(value)),
			map[string]any{"name": args[0], "bytes": len(value)})
	})
}

// readValue reads a secret, up to one byte more than is allowed.
func readValue(stdin io.Reader, path string) ([]byte, error) {
	if err := needPath("FILE", path); err != nil {
		return nil, err
	}
	from := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, usagef("read the secret: %w", err)
		}
		defer file.Close()
		from = file
	}
	value, err := io.ReadAll(io.LimitReader(from, secrets.MaxValue+1))
	if err != nil {
		return nil, fmt.Errorf("read the secret: %w", err)
	}
	return value, nil
}
