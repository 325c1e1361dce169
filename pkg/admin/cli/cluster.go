package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/spf13/cobra"
)

func (a *app) cluster() *cobra.Command {
	return clusterFlags(a, branch(&cobra.Command{
		Use: "cluster", Short: "Manage the cluster through its storage: nonces, identities, CAs, secrets, configs, backups",
	}, a.clusterNonce(), a.clusterRegisterOperator(), clusterCA(a), clusterSecret(a), clusterConfig(a), clusterBackup(a), clusterRestore(a)))
}

// clusterFlags adds the flags of commands that open the storage and the secrets.
func clusterFlags(a *app, cmd *cobra.Command) *cobra.Command {
	storageFlags(a, cmd)
	f := cmd.PersistentFlags()
	f.StringVar(&a.storage.SecretsProvider, "secrets-provider", a.preset("SECRETS_PROVIDER", "object-storage"),
		"secrets provider: object-storage, aws-secrets-manager or aws-parameter-store")
	f.StringVar(&a.storage.SecretsPrefix, "secrets-prefix", a.preset("SECRETS_PREFIX", ""),
		"prefix of secret names (default: cluster/secret/, on AWS nstance/{cluster-id}/)")
	f.StringVar(&a.storage.AWS.Region, "secrets-region", a.preset("SECRETS_REGION", ""),
		"AWS region of secrets and keys (default: AWS_REGION, or the machine's region)")
	f.StringVar(&a.storage.KeyProvider, "key-provider", a.preset("KEY_PROVIDER", "env"),
		"encryption key provider: env, file, aws-secrets-manager or aws-parameter-store")
	f.StringVar(&a.storage.KeySource, "key-source", a.preset("KEY_SOURCE", "NSTANCE_ENCRYPTION_KEY"),
		"environment variable, file, or AWS name or ARN of the encryption key")
	f.StringSliceVar(&a.oldKeys, "old-key", strings.FieldsFunc(a.preset("OLD_KEYS", ""), func(r rune) bool { return r == ',' }),
		"source of an old encryption key, such as env:OLD_KEY or file:PATH, to decrypt with (repeatable)")
	f.StringVar(&a.storage.ClusterID, "cluster-id", a.preset("CLUSTER_ID", ""), "expected cluster ID of the storage (default: any)")
	return cmd
}

func (a *app) needBucket() error {
	if a.storage.Bucket == "" {
		return usagef("--storage-bucket is required: pass the cluster's bucket")
	}
	return nil
}

// reach resolves how AWS is called for the storage.
func reach(a *app, cmd *cobra.Command) (err error) {
	if err := a.needBucket(); err != nil {
		return err
	}
	a.storage, err = a.storage.WithProfile(cmd.Context(), a.env.Profile, func(device string) (string, error) {
		return codeOf(a, cmd, device)
	})
	return err
}

// codeOf prompts for the code of the user's MFA device.
func codeOf(a *app, cmd *cobra.Command, device string) (string, error) {
	if a.env.Stdin == nil || !a.env.Terminal {
		return "", fmt.Errorf("MFA code of %s required, but standard input is not a terminal: "+
			"sign in beforehand (aws configure export-credentials)", device)
	}
	code, err := question(a, cmd, fmt.Sprintf("MFA code of %s: ", device))
	if err == nil && code == "" {
		err = fmt.Errorf("no MFA code of %s was entered", device)
	}
	return code, err
}

// useOldKeys has the storage opened with the keys of --old-key, too.
func useOldKeys(a *app) error {
	a.storage.OldKeys = nil
	for _, text := range a.oldKeys {
		source, err := admin.ParseKeySource(text)
		if err != nil {
			return usagef("--old-key: %w", err)
		}
		a.storage.OldKeys = append(a.storage.OldKeys, source)
	}
	return nil
}

func (a *app) openCluster(cmd *cobra.Command) (*admin.Cluster, error) {
	if err := useOldKeys(a); err != nil {
		return nil, err
	}
	if err := reach(a, cmd); err != nil {
		return nil, err
	}
	return admin.OpenCluster(cmd.Context(), a.storage, a.env.Getenv, a.env.Now, a.env.Random)
}

// openFor opens the cluster for an operator of a tenant, which a shard has to declare.
func openFor(a *app, cmd *cobra.Command, tenant string) (*admin.Cluster, error) {
	c, err := a.openCluster(cmd)
	if err == nil {
		err = c.CheckTenant(cmd.Context(), tenant)
	}
	return c, err
}

func (a *app) clusterNonce() *cobra.Command {
	var tenant, output string
	var expiry time.Duration
	cmd := &cobra.Command{Use: "nonce", Short: "Create a registration nonce for an operator", Args: cobra.NoArgs}
	// The command prints only a token, so here --output names a file.
	cmd.Flags().StringVarP(&output, "output", "o", "-", "file to write the nonce to; - for standard output")
	cmd.Flags().StringVar(&tenant, "tenant", fleet.DefaultTenant, "tenant of the operator")
	cmd.Flags().TextVar((*config.Duration)(&expiry), "expiry", config.Duration(3*time.Hour),
		"lifetime of the nonce, a `duration` such as 3h or 1d")
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		if err := admin.CheckNonce(tenant, expiry); err != nil {
			return usagef("--%w", err)
		}
		if err := needPath("--output", output); err != nil {
			return err
		}
		c, err := openFor(a, cmd, tenant)
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

// writeSecret writes a file readable by its owner only, also if the file existed.
func writeSecret(path, text string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err == nil {
		if err = file.Chmod(0o600); err == nil {
			_, err = file.WriteString(text)
		}
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("write the nonce: %w", err)
	}
	return nil
}

func (a *app) clusterRegisterOperator() *cobra.Command {
	var tenant, dir string
	cmd := &cobra.Command{Use: "register-operator", Short: "Create a client identity for this administrator", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&tenant, "tenant", fleet.DefaultTenant, "tenant of the operator")
	cmd.Flags().StringVar(&dir, "output-dir", a.preset("IDENTITY_DIR", "."), "folder for ca.crt, identity.crt and identity.key to")
	return a.leaf(cmd, func(cmd *cobra.Command, _ []string) error {
		if err := fleet.CheckName(tenant); err != nil {
			return usagef("--tenant: %w", err)
		}
		if err := needPath("--output-dir", dir); err != nil {
			return err
		}
		c, err := openFor(a, cmd, tenant)
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
