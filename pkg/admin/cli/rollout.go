package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func groupRollout(a *app) *cobra.Command {
	return branch(&cobra.Command{Use: "rollout", Short: "Rotation of a group's working instances: pause, resume, abort, retry"},
		rolloutPaused(a, true, &cobra.Command{
			Use: "pause GROUP", Short: "Stop replacing outdated instances", Args: cobra.ExactArgs(1),
			Long: "Until the rollout is resumed, replace no working instance because its definition is outdated or because it has reached\n" +
				"eligible_age. Replacements that have begun are given up, and a smaller size takes the youngest instances first.\n\n" +
				"Instances that fail, reach forced_age or are deleted by their ID are replaced as ever, and files are updated.",
		}),
		rolloutPaused(a, false, &cobra.Command{
			Use: "resume GROUP", Short: "End a pause of the rollout", Args: cobra.ExactArgs(1),
			Long: "Resume replacing instances that are outdated or have reached eligible_age.",
		}),
		rolloutChange(a, (*admin.Client).AbortRollout, &cobra.Command{
			Use: "abort GROUP", Short: "Go back to the definition before the rollout", Args: cobra.ExactArgs(1),
			Long: "Build machines from the definition that most of the group's outdated instances have. Those instances stay, and those\n" +
				"that the rollout has made are replaced. Vars and files are the present ones, as always.\n\n" +
				"Neither the config nor what was changed through the API is undone: the group refuses the definition that these ask for,\n" +
				"until they ask for another one and that is rolled out, or until the rollout is retried.\n\n" +
				"A definition that is too old is not known any more: then nothing is changed.",
		}),
		rolloutChange(a, (*admin.Client).RetryRollout, &cobra.Command{
			Use: "retry GROUP", Short: "Roll out what was aborted after all", Args: cobra.ExactArgs(1),
			Long: "Have the group accept the definition that it has refused since its rollout was aborted.",
		}))
}

// rolloutChange is a command that changes what a group refuses.
func rolloutChange(
	a *app, change func(*admin.Client, context.Context, []client.Shard, string, *string) ([]admin.Group, error), cmd *cobra.Command,
) *cobra.Command {
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		c, shards, err := a.connect(a.target.write)
		if err != nil {
			return err
		}
		groups, err := change(c, cmd.Context(), shards, args[0], nil)
		if len(groups) == 0 {
			return err
		}
		return errors.Join(printAll(cmd.OutOrStdout(), a.format, groups, groupColumns()), err)
	})
}

// rolloutPaused is the command that pauses or resumes a group's rollout.
func rolloutPaused(a *app, paused bool, cmd *cobra.Command) *cobra.Command {
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		return a.upsert(cmd, &nstancev1.UpsertGroupRequest{Key: args[0], RolloutPaused: &paused}, false, false)
	})
}

// awaitRollouts waits until the configs of all shards that accepted theirs are rolled out, and prints
// the progress.
func awaitRollouts(cmd *cobra.Command, c *admin.Client, shards []client.Shard, all []admin.Refresh) error {
	errs := make([]error, len(all))
	var waits sync.WaitGroup
	for n, r := range all {
		if r.Outcome != admin.RefreshUpdated && r.Outcome != admin.RefreshUnchanged {
			continue
		}
		waits.Go(func() {
			shard, err := client.Select(shards, r.Shard)
			if err != nil {
				errs[n] = err
				return
			}
			errs[n] = c.WaitRollout(cmd.Context(), shard[0], r.ETag, func(line string) {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s/%s\n", r.Shard, oneLine(line))
			})
		})
	}
	waits.Wait()
	return errors.Join(errs...)
}
