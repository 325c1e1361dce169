package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/spf13/cobra"
)

func clusterCA(a *app) *cobra.Command {
	return branch(&cobra.Command{Use: "ca", Short: "CAs the cluster trusts: list, show, add, remove"},
		clusterCAList(a), clusterCAShow(a), clusterCAAdd(a), clusterCARemove(a))
}

func printCAs(a *app, cmd *cobra.Command, cas []admin.CA) error {
	return printAll(cmd.OutOrStdout(), a.format, cas, []column[admin.CA]{
		{"SHA-256", func(c admin.CA) string { return c.Fingerprint }},
		{"SUBJECT", func(c admin.CA) string { return c.Subject }},
		{"ENDS", func(c admin.CA) string { return c.NotAfter.Format(time.RFC3339) }},
		{"SIGNS", func(c admin.CA) string {
			if c.Signs {
				return "yes"
			}
			return "no"
		}},
	})
}

func clusterCAList(a *app) *cobra.Command {
	cmd := listing(&cobra.Command{Use: "list", Short: "List the CAs the cluster trusts", Args: cobra.NoArgs}, "SHA-256")
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		c, err := a.openCluster(cmd)
		if err != nil {
			return err
		}
		return printCAs(a, cmd, c.CAs())
	})
}

func clusterCAShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show", Short: "Print the CA certificates as PEM", Args: cobra.NoArgs,
		Long: "Print the PEM certificates of the CAs the cluster trusts, for clients that verify its servers.\n\n" +
			"Unlike a copy of cluster/ca.crt, the output is verified.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		c, err := a.openCluster(cmd)
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(c.Bundle())
		return err
	})
}

func clusterCAAdd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "add FILE", Short: "Trust additional CAs", Args: cobra.ExactArgs(1),
		Long: "Trust the CAs in a PEM file. Every certificate they issue is accepted with the role it names.\n\n" +
			"Servers read the trusted CAs at startup: restart them one by one.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		if err := needPath("FILE", args[0]); err != nil {
			return err
		}
		text, err := os.ReadFile(args[0])
		if err != nil {
			return usagef("read the CA certificates: %w", err)
		}
		more, err := admin.ParseCAs(text)
		if err != nil {
			return usagef("%s: %w", args[0], err)
		}
		c, err := a.openCluster(cmd)
		if err != nil {
			return err
		}
		if err := c.TrustCAs(cmd.Context(), more); err != nil {
			return err
		}
		return printCAs(a, cmd, c.CAs())
	})
}

func clusterCARemove(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove SHA-256", Short: "Stop trusting a CA", Args: cobra.ExactArgs(1),
		Long: "Stop trusting the CA with this fingerprint (see cluster ca list). The CA the cluster signs with can't be removed.\n\n" +
			"Servers read the trusted CAs at startup: restart them one by one.",
	}
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		fingerprint, err := admin.ParseFingerprint(args[0])
		if err != nil {
			return usageError{err}
		}
		c, err := a.openCluster(cmd)
		if err != nil {
			return err
		}
		if err := c.DistrustCA(cmd.Context(), fingerprint); err != nil {
			return fmt.Errorf("remove %s: %w", args[0], err)
		}
		return printCAs(a, cmd, c.CAs())
	})
}
