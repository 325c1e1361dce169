package stack

import (
	"path/filepath"
)

// storageSpec describes the object storage that all shards share.
func storageSpec(cfg Config) Spec {
	return Spec{
		Name:   "s3",
		Path:   filepath.Join(cfg.Bin, "dev-s3"),
		Args:   []string{"--addr", cfg.storeAddr(), "--root", filepath.Join(cfg.Temp, "dev-s3"), "--bucket", bucket},
		Env:    cfg.storeEnv(),
		Health: "http://" + cfg.storeAddr() + "/-/requests",
	}
}
