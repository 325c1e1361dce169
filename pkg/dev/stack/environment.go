package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// What the stack's pieces agree on. The key protects nothing but examples.
const (
	storeAddr     = "127.0.0.1:8989"
	bucket        = "dev"
	clusterID     = "example-cluster"
	encryptionKey = "thisisatest32bytekey123456789012"
	standbyOf     = "dev-1" // the shard that a standby is added to
)

// Environment is what every program of the stack, and a person's shell, needs
// to reach the stack's object storage and secrets.
func Environment() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=dev",
		"AWS_SECRET_ACCESS_KEY=dev",
		"AWS_REGION=us-east-1",
		"AWS_ENDPOINT_URL=http://" + storeAddr,
		"AWS_S3_USE_PATH_STYLE=true",
		"NSTANCE_ENCRYPTION_KEY=" + encryptionKey,
	}
}

// adminEnv is what bin/nstance-admin needs to reach this stack.
func adminEnv(cfg Config) []string {
	var servers []string
	for _, s := range shards() {
		addrs := s.addr(3)
		if cfg.Standby && s.id == standbyOf {
			addrs += ";127.0.0.1:9013"
		}
		servers = append(servers, s.id+"="+addrs)
	}
	return append(Environment(),
		"NSTANCE_ADMIN_SERVERS="+strings.Join(servers, ","),
		"NSTANCE_ADMIN_IDENTITY_DIR="+filepath.Join(cfg.Temp, "admin"),
		"NSTANCE_ADMIN_CLUSTER_ID="+clusterID,
		"NSTANCE_ADMIN_STORAGE_PROVIDER=s3",
		"NSTANCE_ADMIN_STORAGE_BUCKET="+bucket,
		"NSTANCE_ADMIN_KEY_PROVIDER=env",
		"NSTANCE_ADMIN_KEY_SOURCE=NSTANCE_ENCRYPTION_KEY",
	)
}

// writeEnv writes the file that a shell reads with `. temp/dev.env`.
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
