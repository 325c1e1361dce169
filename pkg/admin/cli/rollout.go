package cli

import (
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
)

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
