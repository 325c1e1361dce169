package cli

import (
	"errors"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/object"
	"github.com/spf13/cobra"
)

func storageCommands(a *app) *cobra.Command {
	cmd := branch(&cobra.Command{Use: "storage", Short: "The object storage of a cluster"}, storageCheck(a))
	f := cmd.PersistentFlags()
	f.StringVar(&a.storage.Provider, "storage-provider", a.preset("STORAGE_PROVIDER", "s3"), "s3 or dir")
	f.StringVar(&a.storage.Bucket, "storage-bucket", a.preset("STORAGE_BUCKET", ""), "bucket, or a directory for dir")
	return cmd
}

func storageCheck(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Check whether a store does what Nstance needs", Args: cobra.NoArgs,
		Long: "Checks on the live store what each server checks when it starts. It writes below probe/ and deletes what it wrote.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		if err := reach(a, cmd); err != nil {
			return err
		}
		findings, err := admin.CheckStorage(cmd.Context(), a.storage, a.env.Getenv, a.env.Now(), a.env.Random)
		if len(findings) == 0 {
			return err
		}
		return errors.Join(printAll(cmd.OutOrStdout(), a.format, findings, []column[object.Finding]{
			{"CHECK", func(f object.Finding) string { return f.Check }},
			{"RESULT", func(f object.Finding) string { return f.Result }},
			{"NEEDED SO THAT", func(f object.Finding) string { return f.Meaning }},
			{"DETAIL", func(f object.Finding) string { return f.Detail }},
		}), err)
	})
}
