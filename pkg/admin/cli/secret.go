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
	return branch(&cobra.Command{Use: "secret", Short: "Secrets that instances' files are made from: put"}, clusterSecretPut(a))
}

func clusterSecretPut(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "put NAME FILE", Short: "Store a secret, from a file or, for -, from standard input", Args: cobra.ExactArgs(2),
		Long: "Store a secret, sealed with the cluster's encryption key, in place of the one of that name if there is one.\n\n" +
			"Files of kind secret hand it to instances. Running ones get the new value after `config refresh`.",
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

// readValue reads a secret, and no more than shows that it is too long.
func readValue(stdin io.Reader, path string) ([]byte, error) {
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
