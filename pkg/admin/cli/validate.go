package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	shardconfig "github.com/nstance/nstance/pkg/config"
)

// validateWait is how long a validation waits for a shard's leader at the most.
const validateWait = 10 * time.Second

func configValidate(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "validate FILE", Short: "Validate a config file", Args: cobra.ExactArgs(1),
		Long: "Validate a config file: its text and, if a shard is given and answers, with the provider's rules as a refresh does.\n\n" +
			"Without an answer of a shard the file is checked on its own, and standard error says so.",
	}
	offline := cmd.Flags().Bool("offline", false, "do not ask a shard: check the text without the provider's rules")
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		text, err := readConfig(args[0])
		if err != nil {
			return err
		}
		by := "text"
		if !*offline {
			shard, err := askShard(cmd.Context(), a, text)
			var unasked unaskedError
			switch {
			case errors.As(err, &unasked):
				fmt.Fprintf(cmd.ErrOrStderr(), "only the text was checked, without the provider's rules: %v\n", unasked.error)
			case errors.As(err, new(shardconfig.Located)):
				return fmt.Errorf("%s is not valid:\n%w", args[0], err)
			case err != nil:
				return err
			default:
				by = "shard " + shard
			}
		}
		return a.done(cmd.OutOrStdout(), args[0]+" is valid", map[string]any{"file": args[0], "valid": true, "checked_by": by})
	})
}

// unaskedError is why no shard could check a config.
type unaskedError struct{ error }

// askShard has a shard check a text that is valid on its own, and returns the shard. The error is
// an unaskedError if no shard did.
func askShard(ctx context.Context, a *app, text []byte) (shard string, err error) {
	if a.target.servers == "" {
		return "", unaskedError{errors.New("--servers is not set")}
	}
	client, shards, err := a.connect(a.target.read) //nolint:contextcheck // it reads files
	if errors.Is(err, admin.ErrNoIdentity) {
		return "", unaskedError{err}
	}
	if err != nil {
		return "", err
	}
	if len(shards) > 1 {
		return "", unaskedError{fmt.Errorf("there are %d shards: add --shard NAME", len(shards))}
	}
	ctx, cancel := context.WithTimeout(ctx, validateWait)
	defer cancel()
	_, err = client.PreviewConfig(ctx, shards, text)
	if err == nil {
		return shards[0].ID, nil
	}
	if wrong := admin.TextProblems(text, err); wrong != nil {
		return "", wrong
	}
	return "", unaskedError{err}
}
