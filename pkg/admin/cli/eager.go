package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
)

// eagerAfter is how long the rows of some shards wait for those of the others.
const eagerAfter = 500 * time.Millisecond

// listEach is list for rows of single shards: if a shard does not answer, the rows of the others are
// printed meanwhile. JSON and YAML are one document, so they wait. empty, if not nil, returns the error
// of a list without rows.
func listEach[T any](
	a *app, cmd *cobra.Command, columns func() []column[T], ask func(*admin.Client, context.Context, []client.Shard) ([]T, error),
	empty func(*admin.Client, context.Context, []client.Shard) error,
) *cobra.Command {
	return show(a, cmd, func(cmd *cobra.Command, _ []string) error {
		c, shards, err := a.connect(a.target.read)
		if err != nil {
			return err
		}
		if len(shards) < 2 || a.format != formatTable || layoutOf(cmd.OutOrStdout()).sort != "" {
			rows, err := ask(c, cmd.Context(), shards)
			if err == nil && len(rows) == 0 && empty != nil {
				err = empty(c, cmd.Context(), shards)
			}
			return errors.Join(printAll(cmd.OutOrStdout(), a.format, rows, columns()), err)
		}
		out := table[T]{w: cmd.OutOrStdout(), columns: columns()}
		rows := 0
		err = gather(shards, eagerAfter, func(s client.Shard) ([]T, error) {
			return ask(c, cmd.Context(), []client.Shard{s})
		}, func(more []T) error {
			rows += len(more)
			return out.print(more)
		})
		if err == nil && rows == 0 && empty != nil {
			err = empty(c, cmd.Context(), shards)
		}
		return err
	})
}

// gather asks all shards at once, and shows their rows in the order of the shards: together if all
// answer within a time, and otherwise those that have answered, then each as it answers.
func gather[T any](shards []client.Shard, within time.Duration, ask func(client.Shard) ([]T, error), show func([]T) error) error {
	type answer struct {
		n    int
		rows []T
		err  error
	}
	answers := make(chan answer, len(shards))
	for n, s := range shards {
		go func() {
			rows, err := ask(s)
			answers <- answer{n, rows, err}
		}()
	}
	var (
		waiting = make([][]T, len(shards))
		errs    = make([]error, len(shards))
		due     = time.NewTimer(within)
		late    bool
		shown   error
	)
	defer due.Stop()
	flush := func() {
		if rows := slices.Concat(waiting...); shown == nil {
			shown = show(rows)
		}
		clear(waiting)
	}
	for left := len(shards); left > 0; {
		select {
		case a := <-answers:
			left--
			waiting[a.n], errs[a.n] = a.rows, a.err
			if late && len(a.rows) > 0 || left == 0 && !late {
				flush()
			}
		case <-due.C:
			if late = slices.ContainsFunc(waiting, func(rows []T) bool { return rows != nil }); late {
				flush()
			}
			if !late {
				due.Reset(within)
			}
		}
	}
	return errors.Join(append([]error{shown}, errs...)...)
}
