package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The stack's fixed names. The encryption key protects only examples, in files that
// only their owner can read.
const (
	bucket        = "dev"
	clusterID     = "example-cluster"
	encryptionKey = "thisisatest32bytekey123456789012"
	standbyOf     = "dev-1" // the shard that gets a standby
)

// storeEnv is the environment with the keys of the stack's object storage.
func (c Config) storeEnv() []string {
	return []string{"AWS_ACCESS_KEY_ID=dev", "AWS_SECRET_ACCESS_KEY=" + c.storeKey}
}

// environment is the environment of every program that uses the stack's object storage and secrets.
func (c Config) environment() []string {
	return append(c.storeEnv(),
		"AWS_REGION=us-east-1",
		"AWS_ENDPOINT_URL=http://"+c.storeAddr(),
		"AWS_S3_USE_PATH_STYLE=true",
		"NSTANCE_ENCRYPTION_KEY="+encryptionKey,
	)
}

// telemetry returns the variables of an environment that say how traces are exported.
func telemetry(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(one string) bool { return !strings.HasPrefix(one, "OTEL_") })
}

// agentTelemetry returns those that agents get, which are stored in the config: none may be a secret.
func agentTelemetry(environ []string) map[string]string {
	all := map[string]string{}
	for _, one := range telemetry(environ) {
		if name, value, _ := strings.Cut(one, "="); !strings.HasSuffix(name, "_HEADERS") {
			all[name] = value
		}
	}
	return all
}

// adminEnv is the environment of nstance-admin for this stack.
func adminEnv(cfg Config) []string {
	var servers []string
	for _, s := range cfg.shards() {
		servers = append(servers, s.id+"="+cfg.addrs(s, operatorPort, ";"))
	}
	return append(cfg.environment(),
		"NSTANCE_ADMIN_SERVERS="+strings.Join(servers, ","),
		"NSTANCE_ADMIN_IDENTITY_DIR="+filepath.Join(cfg.Temp, "admin"),
		"NSTANCE_ADMIN_CLUSTER_ID="+clusterID,
		"NSTANCE_ADMIN_STORAGE_PROVIDER=s3",
		"NSTANCE_ADMIN_STORAGE_BUCKET="+bucket,
		"NSTANCE_ADMIN_KEY_PROVIDER=env",
		"NSTANCE_ADMIN_KEY_SOURCE=NSTANCE_ENCRYPTION_KEY",
	)
}

// writeEnv writes the file for `. temp/dev.env`.
func writeEnv(cfg Config) error {
	var b strings.Builder
	all := adminEnv(cfg)
	if cfg.Kubernetes {
		all = append(all, "KUBECONFIG="+cfg.Kubeconfig)
	}
	for _, kv := range all {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	if err := os.WriteFile(filepath.Join(cfg.Temp, "dev.env"), []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write dev.env: %w", err)
	}
	return nil
}
