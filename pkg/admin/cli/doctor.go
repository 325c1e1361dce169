package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/spf13/cobra"
)

// shardPatience is how long the doctor waits for a shard: longer than a change of leader takes.
const shardPatience = 20 * time.Second

func doctorCommand(a *app) *cobra.Command {
	cmd := listing(&cobra.Command{
		Use: "doctor", Short: "Check the storage, the secrets, the CAs and every shard", Args: cobra.NoArgs,
		Long: "Check the storage, the secrets, the CAs, the clock and the ports of every leader if --storage-bucket is given, " +
			"and the identity, the leaders and the agents if --servers is given; each check is a row.\n\n" +
			"It writes objects below probe/ and deletes them. The exit code is 1 if a check fails, " +
			"so a monitoring system can run it; a warning is no failure.",
		Example: "  nstance-admin doctor --storage-bucket example --servers us-west-2a=10.0.0.1:8993",
	}, "CHECK")
	clusterFlags(a, cmd)
	a.shardFlags(cmd)
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		a.reads = true
		if a.storage.Bucket == "" && a.target.servers == "" {
			return usagef("nothing to check: pass --storage-bucket, --servers, or both")
		}
		found, err := diagnose(a, cmd)
		if err != nil {
			return err
		}
		failed := 0
		for _, d := range found {
			if d.Result == admin.DiagnosisFail {
				failed++
			}
		}
		if failed > 0 {
			err = fmt.Errorf("%d of %d checks failed", failed, len(found))
		}
		return errors.Join(printAll(cmd.OutOrStdout(), a.format, found, []column[admin.Diagnosis]{
			{"CHECK", func(d admin.Diagnosis) string { return d.Check }},
			{"RESULT", func(d admin.Diagnosis) string { return d.Result }},
			{"DETAIL", func(d admin.Diagnosis) string { return d.Detail }},
		}), err)
	})
}

func diagnose(a *app, cmd *cobra.Command) (found []admin.Diagnosis, err error) {
	if a.storage.Bucket != "" {
		if err := useOldKeys(a); err != nil {
			return nil, err
		}
		if err := reach(a, cmd); err != nil {
			return nil, err
		}
	}
	doctor := admin.Doctor{Storage: a.storage, Getenv: a.env.Getenv, Now: a.env.Now, Random: a.env.Random}
	if a.storage.Bucket != "" {
		found = doctor.CheckStorage(cmd.Context())
	}
	if a.target.servers == "" {
		return found, nil
	}
	client, shards, err := a.connect(a.target.read)
	if errors.As(err, new(usageError)) {
		return nil, err
	}
	if err != nil {
		return append(found, admin.Diagnosis{Check: "identity", Result: admin.DiagnosisFail, Detail: fmt.Sprintf("%v; %s", err, hint(err))}), nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), shardPatience)
	defer cancel()
	found = append(found, doctor.CheckIdentity(client))
	return append(found, doctor.CheckShards(ctx, client, shards)...), nil
}
