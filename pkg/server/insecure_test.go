package server_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server"
)

// TestPlainStorage: a server refuses to use plain HTTP to a bucket on another machine, unless
// the flag or the environment allows it.
func TestPlainStorage(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint, allowed string
		flag              bool
		want              string // in the error; empty: none
	}{
		"refused":           {"http://minio.test:9000", "", false, `"http://minio.test:9000", plain HTTP to a remote host: want https://`},
		"by name":           {"http://minio.test:9000", "false", false, "NSTANCE_INSECURE_STORAGE=true"},
		"by the flag":       {"http://minio.test:9000", "", true, ""},
		"by the variable":   {"http://minio.test:9000", "true", false, ""},
		"a variable's typo": {"http://minio.test:9000", "yes", false, `NSTANCE_INSECURE_STORAGE: "yes" is not valid: want true or false`},
		"on this machine":   {"http://127.0.0.1:9", "", false, ""},
		"with TLS":          {"https://minio.test:9000", "", false, ""},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a server that may start ends at once
		err := server.Run(ctx, server.Config{
			Shard: shardID, ID: "a", StorageProvider: "s3", StorageBucket: "bucket", CacheDir: t.TempDir(), AdvertiseHost: "127.0.0.1",
			Bind: server.Endpoints{Health: "127.0.0.1:0"}, InsecureStorage: c.flag,
			Getenv: env(map[string]string{
				"AWS_ENDPOINT_URL_S3": c.endpoint, "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "NSTANCE_INSECURE_STORAGE": c.allowed,
			}),
			Now: time.Now, Random: rand.Reader, Logger: slog.New(slog.DiscardHandler),
		})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
