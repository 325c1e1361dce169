package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/spf13/cobra"
)

func (a *app) cluster() *cobra.Command {
	cmd := branch(&cobra.Command{Use: "cluster", Short: "The cluster itself: nonces, identities, secrets, configs, straight from storage"},
		a.clusterNonce(), a.clusterRegisterOperator(), clusterSecret(a), clusterConfig(a))
	f := cmd.PersistentFlags()
	f.StringVar(&a.storage.Provider, "storage-provider", a.preset("STORAGE_PROVIDER", "s3"), "s3 or dir")
	f.StringVar(&a.storage.Bucket, "storage-bucket", a.preset("STORAGE_BUCKET", ""), "bucket, or a directory for dir")
	f.StringVar(&a.storage.SecretsProvider, "secrets-provider", a.preset("SECRETS_PROVIDER", "object-storage"),
		"where the cluster's secrets are: object-storage, aws-secrets-manager or aws-parameter-store")
	f.StringVar(&a.storage.SecretsPrefix, "secrets-prefix", a.preset("SECRETS_PREFIX", ""),
		"what the names of secrets begin with (default: cluster/secret/, on AWS nstance/{cluster-id}/)")
	f.StringVar(&a.storage.AWS.Region, "secrets-region", a.preset("SECRETS_REGION", ""),
		"region of what is at AWS by name (default: AWS_REGION, or as the machine says)")
	f.StringVar(&a.storage.KeyProvider, "key-provider", a.preset("KEY_PROVIDER", "env"),
		"where the encryption key is: env, file, aws-secrets-manager or aws-parameter-store")
	f.StringVar(&a.storage.KeySource, "key-source", a.preset("KEY_SOURCE", "NSTANCE_ENCRYPTION_KEY"),
		"the key's environment variable, file, or name or ARN at AWS")
	f.StringVar(&a.storage.ClusterID, "cluster-id", a.preset("CLUSTER_ID", ""), "the cluster that the storage must hold (default: any)")
	return cmd
}

func (a *app) needBucket() error {
	if a.storage.Bucket == "" {
		return usagef("--storage-bucket: is empty: want the cluster's bucket")
	}
	return nil
}

// reach finds out how the storage is called.
func reach(a *app, cmd *cobra.Command) (err error) {
	if err := a.needBucket(); err != nil {
		return err
	}
	a.storage, err = a.storage.WithProfile(cmd.Context(), a.env.Profile, func(device string) (string, error) {
		return codeOf(a, cmd, device)
	})
	return err
}

// codeOf asks for the code that a device of a person shows.
func codeOf(a *app, cmd *cobra.Command, device string) (string, error) {
	if a.env.Stdin == nil || !a.env.Terminal {
		return "", fmt.Errorf("the code of %s is wanted, and standard input is no terminal to ask on: "+
			"sign on beforehand (aws configure export-credentials)", device)
	}
	code, err := question(a, cmd, fmt.Sprintf("Code of %s: ", device))
	if err == nil && code == "" {
		err = fmt.Errorf("no code of %s was given", device)
	}
	return code, err
}

func (a *app) openCluster(cmd *cobra.Command) (*admin.Cluster, error) {
	if err := reach(a, cmd); err != nil {
		return nil, err
	}
	return admin.OpenCluster(cmd.Context(), a.storage, a.env.Getenv, a.env.Now, a.env.Random)
}

func (a *app) clusterNonce() *cobra.Command {
	var tenant, output string
	var expiry time.Duration
	cmd := &cobra.Command{Use: "nonce", Short: "Make a registration nonce for an operator", Args: cobra.NoArgs}
	// This one prints a token and nothing else, so its --output is a file.
	cmd.Flags().StringVarP(&output, "output", "o", "-", "file to write it to; - for standard output")
	cmd.Flags().StringVar(&tenant, "tenant", fleet.DefaultTenant, "tenant of the operator")
	cmd.Flags().DurationVar(&expiry, "expiry", 3*time.Hour, "how long the nonce can be used")
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		if err := admin.CheckNonce(tenant, expiry); err != nil {
			return usagef("--%w", err)
		}
		c, err := a.openCluster(cmd)
		if err != nil {
			return err
		}
		token, err := c.OperatorNonce(tenant, expiry)
		if err != nil {
			return err
		}
		if output == "-" {
			fmt.Fprintln(cmd.OutOrStdout(), token)
			return nil
		}
		return writeSecret(output, token)
	})
}

// writeSecret writes a file that nobody else may read, even if it was there.
func writeSecret(path, text string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write the nonce: %w", err)
	}
	err = file.Chmod(0o600)
	if err == nil {
		_, err = file.WriteString(text)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the nonce: %w", err)
	}
	return nil
}

func (a *app) clusterRegisterOperator() *cobra.Command {
	var tenant, dir string
	cmd := &cobra.Command{Use: "register-operator", Short: "Make a client identity for this administrator", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&tenant, "tenant", fleet.DefaultTenant, "tenant of the operator")
	cmd.Flags().StringVar(&dir, "output-dir", a.preset("IDENTITY_DIR", "."), "folder to write ca.crt, identity.crt and identity.key to")
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		if err := fleet.CheckName(tenant); err != nil {
			return usagef("--tenant: %w", err)
		}
		c, err := a.openCluster(cmd)
		if err != nil {
			return err
		}
		o, err := c.RegisterOperator(cmd.Context(), tenant, dir)
		if err != nil {
			return err
		}
		return a.done(cmd.OutOrStdout(), fmt.Sprintf("registered operator %s of tenant %s; its identity is in %s", o.ID, tenant, dir),
			map[string]string{"id": string(o.ID), "tenant": tenant, "identity_dir": dir})
	})
}
