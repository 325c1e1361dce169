package cli

import (
	"errors"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/object"
	"github.com/spf13/cobra"
)

func storageCommands(a *app) *cobra.Command {
	return storageFlags(a, branch(&cobra.Command{Use: "storage", Short: "The object storage of a cluster"}, storageCheck(a)))
}

// storageFlags adds the flags of commands that open the storage.
func storageFlags(a *app, cmd *cobra.Command) *cobra.Command {
	f := cmd.PersistentFlags()
	f.StringVar(&a.storage.Provider, "storage-provider", a.preset("STORAGE_PROVIDER", "s3"), "s3 or dir")
	f.StringVar(&a.storage.Bucket, "storage-bucket", a.preset("STORAGE_BUCKET", ""), "bucket name; a directory with provider dir")
	f.BoolVar(&a.storage.Insecure, "insecure-storage", false,
		"allow plain HTTP to remote object storage and AWS secrets (NSTANCE_INSECURE_STORAGE)")
	return cmd
}

func storageCheck(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Check whether a store meets Nstance's requirements", Args: cobra.NoArgs,
		Long: "Run the checks of a starting server against the live store. They write objects below probe/ and delete them.",
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
